package process_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/process"
	"github.com/holdfast-dvir/holdfast/projection"
)

func TestRoutes(t *testing.T) {
	routes, err := process.NewRoutes([]process.Route{
		{Stage: chain.StageDispatch, Target: "backend"},
		{Channel: chain.OCRDocument, ContentType: "image/*", Target: "ocr"},
		{ContentType: "application/pdf", Target: "ocr"},
		{Channel: chain.ManualEntry, Target: "builtin"},
		{Channel: chain.ManualEntry, Target: "ocr"},
	}, []string{"builtin", "backend", "ocr"})
	require.NoError(t, err)
	for target, letters := range map[string][]chain.Letter{
		"backend": {{Channel: chain.OCRDocument, ContentType: "image/png", Failure: &chain.Envelope{Stage: chain.StageDispatch}}},
		"ocr": {{Channel: chain.OCRDocument, ContentType: "Image/PNG; q=1"}, {Channel: chain.MobileExport, ContentType: " application/pdf"},
			{Channel: chain.OCRDocument, ContentType: "image/tiff", Failure: &chain.Envelope{Stage: chain.StageParse}}},
		"builtin": {{Channel: chain.MobileExport, ContentType: "image/png"}, {Channel: chain.OCRDocument}, {Channel: chain.ManualEntry},
			{Channel: chain.OCRDocument, ContentType: "imagery/x"}, {Channel: chain.OCRDocument, ContentType: "image/png\x00/y"}},
	} {
		for _, l := range letters {
			assert.Equal(t, target, routes.Of(l), "%s %s", l.Channel, l.ContentType)
			for _, name := range []string{"builtin", "backend", "ocr"} {
				assert.Equal(t, name == target, routes.Picks(name)(projection.KindOf(&l)))
			}
		}
	}
}

func TestRoutesAreChecked(t *testing.T) {
	for field, r := range map[string]process.Route{
		"channel":      {Channel: "fax", Target: "builtin"},
		"stage":        {Stage: "lunch", Target: "builtin"},
		"content_type": {ContentType: "image/png; q=1", Target: "builtin"},
		"processor":    {Target: "nobody"},
	} {
		_, err := process.NewRoutes([]process.Route{r}, []string{"builtin"})
		var wrong *chain.FieldError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, field, wrong.Field)
	}
}

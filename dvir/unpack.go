package dvir

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"path"
	"strings"
)

// Limits of what is unpacked. Sizes that a container states are not believed: reading stops at the limit.
const (
	maxUnpacked = 16 << 20 // bytes, of all that one container holds
	maxMembers  = 1000     // of an archive, or parts of a multipart body
	maxWraps    = 3        // containers around a document
)

// within reads what a container holds.
func (s *source) within(data []byte, media string) reading {
	if s.wraps == maxWraps {
		return refuse(codeExpansion)
	}
	in := s.Input
	in.Data, in.ContentType, in.ContentEncoding = data, media, ""
	return readSource(newSource(in, s.wraps+1))
}

// readGzip meets gzip that is declared, as content encoding or as type.
func readGzip(s *source) (reading, bool) {
	encoding := s.encoding()
	declared := encoding == "gzip" || encoding == "x-gzip"
	switch {
	case !declared && (encoding != "" || s.declared() != formatGzip):
		return reading{}, false
	case s.format != formatGzip:
		return refuse(codeTypeMismatch), true // whoever unpacked it kept the label
	}
	data, code := inflate(s.Data)
	if code != "" {
		return refuse(code), true
	}
	media := s.ContentType
	if !declared {
		media = ""
	}
	return s.within(data, media), true
}

// encoding is the declared content encoding, "" if it changes nothing.
func (s *source) encoding() string {
	if encoding := strings.ToLower(strings.TrimSpace(s.ContentEncoding)); encoding != "identity" {
		return encoding
	}
	return ""
}

// inflate unpacks gzip (RFC 1952) whole, all members of it, or says why not. All bytes of a member come before its checksum:
// they count only with it.
func inflate(data []byte) (out []byte, code string) {
	r := bytes.NewReader(data)
	var z gzip.Reader
	for r.Len() > 0 {
		if !bytes.HasPrefix(data[len(data)-r.Len():], []byte("\x1f\x8b")) {
			return nil, codeTrailing
		}
		err := z.Reset(r)
		if err == nil {
			z.Multistream(false)
			var more []byte
			more, err = io.ReadAll(io.LimitReader(&z, int64(maxUnpacked+1-len(out))))
			out = append(out, more...)
		}
		_, corrupt := errors.AsType[flate.CorruptInputError](err)
		switch {
		case len(out) > maxUnpacked:
			return nil, codeExpansion
		case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), corrupt:
			return nil, codeGzipChecksum
		case err != nil:
			return nil, codeGzipTruncated
		}
	}
	return out, ""
}

// part is a document or an attachment in a container.
type part struct {
	data  []byte
	media string
}

// readArchive meets a zip. Its one document is the payload; pictures beside it are its attachments.
func readArchive(s *source) (reading, bool) {
	if s.format != formatArchive {
		return reading{}, false
	}
	archive, err := zip.NewReader(bytes.NewReader(s.Data), int64(len(s.Data)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return refuse(codeArchiveInvalid), true
	}
	if len(archive.File) > maxMembers {
		return refuse(codeExpansion), true
	}
	for _, f := range archive.File {
		if !stays(f.Name) {
			return refuse(codeArchivePath), true
		}
	}
	parts, code := members(archive)
	if code != "" {
		return refuse(code), true
	}
	return s.document(parts), true
}

// stays tells whether the name of a member leads into the folder of its archive and nowhere else, on any system.
func stays(name string) bool {
	rooted := "/" + strings.TrimSuffix(name, "/")
	return rooted == path.Clean(rooted) && rooted != "/" && !strings.ContainsAny(name, "\\:\x00")
}

func members(archive *zip.Reader) (parts []part, code string) {
	left := int64(maxUnpacked)
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/") || strings.HasPrefix(f.Name, "__MACOSX/") || path.Base(f.Name) == ".DS_Store" {
			continue
		}
		data, code := unzip(f, left)
		if code != "" {
			return nil, code
		}
		left -= int64(len(data))
		parts = append(parts, part{data, mediaTypes[strings.ToLower(path.Ext(f.Name))]})
	}
	return parts, ""
}

// unzip reads a member of at most so many bytes.
func unzip(f *zip.File, most int64) ([]byte, string) {
	const encrypted = 1
	if f.Flags&encrypted != 0 {
		return nil, codeUnsupported
	}
	r, err := f.Open()
	var data []byte
	if err == nil {
		defer r.Close()
		data, err = io.ReadAll(io.LimitReader(r, most+1))
	}
	switch {
	case int64(len(data)) > most:
		return nil, codeExpansion
	case errors.Is(err, zip.ErrAlgorithm):
		return nil, codeUnsupported
	case err != nil:
		return nil, codeArchiveInvalid
	}
	return data, ""
}

// mediaTypes are those of members, by the ends of their names.
var mediaTypes = map[string]string{".json": "application/json", ".xml": "text/xml", ".csv": "text/csv", ".pdf": "application/pdf",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".tif": "image/tiff", ".tiff": "image/tiff"}

// document reads the one part that is not a picture; a picture alone is the document.
func (s *source) document(parts []part) reading {
	var documents []part
	for _, p := range parts {
		if !strings.HasPrefix(p.media, "image/") && sniff(p.data) != formatImage {
			documents = append(documents, p)
		}
	}
	switch {
	case len(documents) == 1:
		return s.within(documents[0].data, documents[0].media)
	case len(documents) == 0 && len(parts) == 1:
		return s.within(parts[0].data, parts[0].media)
	case len(parts) == 0:
		return refuse(codeEmpty)
	}
	return refuse(codeUnsupported)
}

// readMultipart meets a multipart body (RFC 2046): a document and its attachments.
func readMultipart(s *source) (reading, bool) {
	if !strings.HasPrefix(s.media, "multipart/") {
		return reading{}, false
	}
	_, parameters, err := mime.ParseMediaType(s.ContentType)
	if err != nil || parameters["boundary"] == "" {
		return refuse(codeUnsupported), true
	}
	if !bytes.Contains(s.Data, []byte("--"+parameters["boundary"]+"--")) {
		return refuse(codeMultipart), true
	}
	parts, code := pieces(multipart.NewReader(bytes.NewReader(s.Data), parameters["boundary"]))
	if code != "" {
		return refuse(code), true
	}
	return s.document(parts), true
}

func pieces(r *multipart.Reader) (parts []part, code string) {
	left := int64(maxUnpacked)
	for {
		p, err := r.NextPart()
		if err == io.EOF { //nolint:errorlint // wrapped, it is the end of a body that lacks its own
			return parts, ""
		}
		if len(parts) == maxMembers {
			return nil, codeExpansion
		}
		var data []byte
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(p, left+1))
		}
		if int64(len(data)) > left {
			return nil, codeExpansion
		}
		if err != nil {
			return nil, codeMultipart
		}
		if strings.EqualFold(p.Header.Get("Content-Transfer-Encoding"), "base64") {
			if data, err = base64.StdEncoding.DecodeString(string(data)); err != nil {
				return nil, codeMultipart
			}
		}
		left -= int64(len(data))
		if isReport(p) {
			parts = append(parts, part{data, p.Header.Get("Content-Type")})
		}
	}
}

// isReport tells a file or a document from the plain fields of a form.
func isReport(p *multipart.Part) bool {
	return p.FileName() != "" || p.Header.Get("Content-Type") != ""
}

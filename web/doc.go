// Package web is the HTTP interface of Holdfast: the API under /v1 and its Go client.
//
// # Requests
//
// Every request but those to /healthz, /readyz and /openapi.json carries a bearer token (RFC 6750). A token has a
// name, which stands as the actor in the events it causes, and one role; the table access says which role may call
// what. Query parameters and JSON members that an operation does not document are refused rather than ignored,
// because a misspelt filter that shows everything is worse than an error. The description of all operations is
// served as OpenAPI 3.1 at /openapi.json and needs nothing from elsewhere.
//
// # Submissions
//
// A payload is the body of POST /v1/payloads, whatever its content type, byte for byte; an empty body is a valid
// payload. It is streamed into the store and never held in memory as a whole. The answer is a Receipt, and there is
// none before the bytes and the event about them are durable: 201 for new bytes, 200 for known ones.
// With ?wait=5s the receipt is given when processing has come to an outcome, or after that time with the state so
// far.
//
// A failure comes to POST /v1/failures in one of three forms:
//
//	raw        the body is the payload, what went wrong stands in query parameters, stage among them, and the
//	           error text in the header Holdfast-Error-Message:
//	           curl -H "Authorization: Bearer $TOKEN" --data-binary @report.json \
//	             'http://127.0.0.1:8420/v1/failures?stage=parse&error_type=schema'
//	multipart  multipart/form-data with one part per field and, last, the payload as part "payload"; fields come
//	           first because the payload is not kept before it is known what to do with it:
//	           curl -H "Authorization: Bearer $TOKEN" -F stage=parse -F 'message=<error.txt' \
//	             -F payload=@report.json http://127.0.0.1:8420/v1/failures
//	JSON       application/json without a stage parameter: the fields as members, for a payload that is in custody
//	           already and is named by payload_ref
//
// There is no query parameter for the error text: it may quote personal data, and URLs are written to logs.
//
// # Answers
//
// Every error is a Problem (RFC 9457), with a type that programs can rely on. No problem, header or log line repeats
// a value of the request or bytes of a payload; only names that the API itself defines are repeated. One table in
// error.go says which error of the rooms below becomes which problem.
//
// Lists are pages; next is the cursor of the following page and absent at the end.
//
// # Events
//
// GET /v1/events and GET /v1/log/entries give the lines of the log as they are stored and hashed, one per line
// (application/x-ndjson). Events also come as a stream of server-sent events with the sequence number as id, so that
// a client resumes by Last-Event-ID. after is the sequence number of the last event already had, -1 before the first.
// A stream lasts until its client or the server's base context ends.
//
// # Payload bytes
//
// GET /v1/letters/{ref}/payload asks for a reason, which is recorded before the first byte. Bytes are verified while
// they are sent; if they turn out damaged, the connection is cut before the last of them, so that a client cannot
// take them for whole.
package web

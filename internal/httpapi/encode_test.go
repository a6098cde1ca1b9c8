package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
)

// An answer that JSON cannot say is a 500 with a problem, not a 200 that ends in a sentence.
func TestWhatCannotBeWrittenAsJSONIsA500(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("T")
	id := d.want(201, "POST", "/transactions", `{"queue": "q", "type": "T", "data": {}, "uid": "u"}`).str("id")
	if _, err := d.store.Pool().Exec(t.Context(), `UPDATE postern.task SET not_before = '20000-01-01'`); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/transactions", "/transactions/" + id, "/transactions/by-uid/u"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", d.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		raw, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		var doc struct {
			Code      string `json:"code"`
			RequestID string `json:"request_id"`
		}
		if jsonErr := json.Unmarshal(raw, &doc); err != nil || jsonErr != nil || a.StatusCode != 500 ||
			doc.Code != "internal" ||
			doc.RequestID == "" || a.Header.Get("Content-Type") != "application/problem+json" ||
			a.Header.Get("ETag") != "" {
			t.Errorf("%s: %d %v %v\n%s", path, a.StatusCode, err, a.Header, raw)
		}
	}
	if _, err := d.store.Pool().Exec(t.Context(), `UPDATE postern.task SET not_before = '2000-01-01'`); err != nil {
		t.Fatal(err)
	}
	d.want(200, "GET", "/transactions", "")
}

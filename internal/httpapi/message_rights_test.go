package httpapi_test

import "testing"

// A message to a context in which its sender has no role is refused here, whatever it is, also one that is not there,
// and nothing is stored.
func TestAMessageToAContextOfOthersIsRefused(t *testing.T) {
	d, root := closedDoor(t)
	for _, name := range []string{"shop", "other"} {
		d.want(201, "PUT", "/contexts/"+name, `{}`, root)
	}
	admin, _, _ := d.key(root, "shop", "admin")
	in := "Postern-Context: shop"
	for _, to := range []string{"other", "nowhere"} {
		for _, what := range []string{`"chat", "message": "x"`,
			`"job", "job": [{"script": "1", "script_type": "bash"}]`} {
			r := d.refused(403, "forbidden", "POST", "/messages",
				`{"to": {"context": "`+to+`"}, "message_type": `+what+`}`, admin, in)
			if errs, _ := r.body["errors"].([]any); len(errs) != 1 ||
				errs[0].(map[string]any)["pointer"] != "/to/context" {
				t.Errorf("%s, %s: %v", to, what, r.body)
			}
		}
	}
	if items := d.want(200, "GET", "/messages", "", admin, in).body["items"].([]any); len(items) != 0 {
		t.Errorf("%d messages are stored", len(items))
	}
	d.want(201, "POST", "/messages", `{"to": {"context": "shop"}, "message_type": "chat", "message": "x"}`, admin, in)
}

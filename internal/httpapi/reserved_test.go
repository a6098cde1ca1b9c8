package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
)

// The names under which systems of Postern post are theirs: no role posts under one, in whatever way.
func TestNoRolePostsUnderTheNamesOfASystem(t *testing.T) {
	d, root := closedDoor(t)
	d.want(201, "PUT", "/contexts/shop", "{}", root)
	in := "Postern-Context: shop"
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:1/"}`, root, in)
	plain := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`, root, in).str("id")
	admin, _, _ := d.key(root, "shop", "admin")
	executor, _, _ := d.key(root, "shop", "executor")
	const id = "00000000-0028-82d0-944b-c7c000000001"
	for role, header := range map[string]string{"system admin": root, "admin": admin, "executor": executor} {
		for field, values := range map[string][]string{
			"type":  {"leader.tool", "leader.result"},
			"uid":   {"event:" + id + ":result", "event:" + id + ":tool:2"},
			"queue": {"processor:main:1"},
		} {
			for _, value := range values {
				fields := map[string]string{"type": "pay", "queue": "q", "uid": "u"}
				fields[field] = value
				item := fmt.Sprintf(`{"type": %q, "queue": %q, "uid": %q, "not_before": "2030-01-01T00:00:00Z"}`,
					fields["type"], fields["queue"], fields["uid"])
				p := d.refused(403, "forbidden", "POST", "/transactions", item, header, in)
				if !strings.Contains(p.raw, `"pointer":"/`+field+`"`) {
					t.Errorf("%s, %s: %s", role, value, p.raw)
				}
				batch := `{"atomic": true, "items": [` + item + `]}`
				d.refused(403, "forbidden", "POST", "/transactions:batch", batch, header, in)
				b := d.want(207, "POST", "/transactions:batch", `{"items": [`+item+`, {"type": "pay"}]}`, header, in)
				if !strings.Contains(b.raw, `"status":403`) {
					t.Errorf("%s, %s: %s", role, value, b.raw)
				}
				switch {
				case field == "uid":
					without := strings.Replace(item, `"uid"`, `"traceless"`, 1)
					without = strings.Replace(without, fmt.Sprintf(`"traceless": %q, `, value), "", 1)
					d.refused(403, "forbidden", "POST", "/transactions", without, header, in, "Idempotency-Key: "+value)
				case field == "queue" && role != "executor":
					d.refused(403, "forbidden", "POST", "/transactions/"+plain+"/move", `{"queue": "`+value+`"}`, header, in)
				}
			}
		}
	}
}

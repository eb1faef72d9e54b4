package healthapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"zonehop/cmd/appliance/internal/admin"
)

// repeatAfter is how often a stream repeats an unchanged document.
const repeatAfter = 2 * time.Second

// watch streams a document. It ends when the reader goes, does not read, or falls behind, when what
// it asked for is not configured any more, and when the appliance stops.
func watch(w http.ResponseWriter, r *http.Request, src Source, doc document) {
	updates, cancel, err := src.WatchHealth()
	if err != nil {
		say(w, http.StatusServiceUnavailable, failure{err.Error()})
		return
	}
	defer cancel()
	u := <-updates // the present state
	v, ok := doc(&u)
	if !ok {
		say(w, http.StatusNotFound, failure{"there is no such health source or composite health check"})
		return
	}
	lines, err := admin.NewLineWriter(w)
	if err != nil {
		return
	}
	var sent []byte
	send := func(repeat bool) bool {
		text, err := json.Marshal(v)
		if err != nil || !repeat && bytes.Equal(text, sent) {
			return err == nil
		}
		sent = text
		return lines.Send(json.RawMessage(text)) == nil
	}
	repeat := time.NewTicker(repeatAfter)
	defer repeat.Stop()
	for alive := send(false); alive; {
		select {
		case <-r.Context().Done():
			return
		case <-repeat.C:
			alive = send(true)
		case u, more := <-updates:
			if !more {
				return
			}
			if v, ok = doc(&u); !ok {
				return
			}
			alive = send(false)
		}
	}
}

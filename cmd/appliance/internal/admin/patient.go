package admin

import (
	"io"
	"net/http"
	"time"
)

// patienceBytes is how much is written at a time.
const patienceBytes = 64 << 10

// patience is how long a client may take to read that much, beside what the
// kernel buffers for it. Tests have less.
var patience = 30 * time.Second

// patient writes an answer of any size to a client that may be slow, as long as
// it reads at all.
type patient struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newPatient(w http.ResponseWriter) io.Writer {
	return &patient{w, http.NewResponseController(w)}
}

// Write implements io.Writer.
func (p *patient) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if err := p.control.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return n, err
		}
		k, err := p.w.Write(b[n:min(n+patienceBytes, len(b))])
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// sendTimeout is how long a watcher may take to accept a line before it is given up.
const sendTimeout = 5 * time.Second

// LineWriter sends JSON values as lines, each at once.
type LineWriter struct {
	encoder *json.Encoder
	control *http.ResponseController
}

// NewLineWriter begins a response of JSON lines and sends its header.
func NewLineWriter(w http.ResponseWriter) (*LineWriter, error) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	l := &LineWriter{encoder: json.NewEncoder(w), control: http.NewResponseController(w)}
	if err := l.control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return nil, err
	}
	return l, l.control.Flush()
}

// Send writes one value. An error means that the reader is gone or does not read.
func (l *LineWriter) Send(v any) error {
	if err := l.control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if err := l.encoder.Encode(v); err != nil {
		return err
	}
	return l.control.Flush()
}

// watchHealth streams every change of health, from the moment the header is sent.
func watchHealth(a Appliance, w http.ResponseWriter, r *http.Request) {
	updates, cancel, err := a.WatchHealth()
	if err != nil {
		reply(w, nil, err)
		return
	}
	defer cancel()
	lines, err := NewLineWriter(w)
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case u, ok := <-updates:
			if !ok {
				return // fell behind
			}
			for i := range u.Events {
				if err = lines.Send(&u.Events[i]); err != nil {
					return
				}
			}
		}
	}
}

// WatchHealth calls each for every change of health, in order, until ctx is done, which is no error.
// ready is called once no further change can be missed; it may be nil.
func (c *Client) WatchHealth(ctx context.Context, ready func(), each func(HealthEvent)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://appliance/health/watch", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return c.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	if ready != nil {
		ready()
	}
	d := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var e HealthEvent
		switch err := d.Decode(&e); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("the appliance ended the watch: it stopped, or this reader fell behind")
		case err != nil:
			return fmt.Errorf("read the appliance's answer: %w", err)
		}
		each(e)
	}
}

// ExplainHealth asks for the state of a health source or composite check, and why.
func (c *Client) ExplainHealth(q ExplainHealthRequest) (e HealthExplanation, err error) {
	err = c.post("/explain-health", q, &e)
	return e, err
}

package neigh

import "time"

// readAll reads links, addresses and neighbours, and has every route looked up.
func (t *tracker) readAll(now time.Time) error {
	names, _ := t.w.settings()
	t.names = names
	links, err := readLinks(t.w.handle, t.w.ioctlFD, t.names)
	if err != nil {
		t.w.readErrors.Add(1)
		return err
	}
	neighbours, err := readNeighbours(t.w.handle)
	if err != nil {
		t.w.readErrors.Add(1)
		return err
	}
	t.neighbours = neighbours
	t.adoptLinks(links, now)
	t.judgeAll(now)
	t.markAll()
	t.readDirty, t.linksDirty = false, false
	end := time.Now()
	t.readFrom = end.Add(restFactor * end.Sub(now))
	t.relink, t.reread = end.Add(relinkInterval), end.Add(rereadInterval)
	return nil
}

func (t *tracker) readLinks(now time.Time) {
	links, err := readLinks(t.w.handle, t.w.ioctlFD, t.names)
	end := time.Now()
	t.relink = end.Add(relinkInterval)
	if err != nil {
		t.w.readErrors.Add(1)
		t.linksDirty, t.linksFrom = true, end.Add(retryInterval)
		return
	}
	t.linksDirty, t.linksFrom = false, end.Add(restFactor*end.Sub(now))
	t.adoptLinks(links, now)
}

func (t *tracker) adoptLinks(links *linkTable, now time.Time) {
	if t.links.equal(links) {
		return
	}
	t.links = links
	t.touch(now)
	t.judgeAll(now)
	t.markAll()
}

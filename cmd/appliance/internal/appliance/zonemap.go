package appliance

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"zonehop/config"
)

// zoneMapFile remembers which version of the zone map file is in force.
type zoneMapFile struct {
	seen fileVersion // read last, good or bad
	next fileVersion // found at the last look, and not read yet
}

// fileVersion tells two versions of a file apart without reading it.
type fileVersion struct {
	mtime time.Time
	size  int64
	inode uint64
}

// load reads the file that the configuration names, if any.
func (z *zoneMapFile) load(c *config.Config) ([]config.ZoneMapEntry, error) {
	if c.ZoneMapFile == "" {
		return nil, nil
	}
	z.seen = versionOf(c.ZoneMapFile)
	entries, problems := c.LoadZoneMap()
	if errs := problems.Errors(); len(errs) > 0 {
		rest := ""
		if n := len(errs) - mostZoneMapProblems; n > 0 {
			errs, rest = errs[:mostZoneMapProblems], fmt.Sprintf("\nand %d more", n)
		}
		return nil, fmt.Errorf("read zoneMapFile: %s%s", errs, rest)
	}
	return entries, nil
}

// mostZoneMapProblems bounds what a file of something else puts into the log; check says all of it.
const mostZoneMapProblems = 10

// settled looks at the file and reports whether there is another version to read. One that is new has to
// be there at the next look too: a file that is written in place is empty, and then a part of what
// it will be.
func (z *zoneMapFile) settled(path string) bool {
	now := versionOf(path)
	rested := now == z.next
	z.next = now
	return rested && now != z.seen
}

// checkZoneMap takes a changed zone map file into force. A file with a bad
// line is refused as a whole and the map in force stays.
func (a *Appliance) checkZoneMap() {
	c := a.config.Load()
	if c.ZoneMapFile == "" {
		return
	}
	a.mu.Lock()
	settled := a.zoneMap.settled(c.ZoneMapFile)
	a.mu.Unlock()
	if !settled {
		return
	}
	// Reading a large file takes seconds, in which verdicts must not wait.
	var fresh zoneMapFile
	entries, err := fresh.load(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.config.Load() != c {
		return // a reload was faster; it read the file too
	}
	a.zoneMap.seen = fresh.seen
	if err != nil {
		a.log.Error("zone map file refused; the map in force stays", zap.Error(err))
		return
	}
	if err := a.applyLocked(c, entries); err != nil {
		a.log.Error("zone map file refused; the map in force stays", zap.Error(err))
		return
	}
	a.log.Info("zone map file read", zap.String("file", c.ZoneMapFile), zap.Int("entries", len(entries)))
}

// versionOf identifies a file's contents as well as its metadata can; the zero
// value is a file that cannot be looked at.
func versionOf(path string) fileVersion {
	fi, err := os.Stat(path)
	if err != nil {
		return fileVersion{}
	}
	return fileVersion{mtime: fi.ModTime(), size: fi.Size(), inode: inodeOf(fi)}
}

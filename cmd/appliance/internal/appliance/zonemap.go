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
	entries []config.ZoneMapEntry
	seen    fileVersion // looked at last, good or bad
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
		z.entries, z.seen = nil, fileVersion{}
		return nil, nil
	}
	z.seen = versionOf(c.ZoneMapFile)
	entries, problems := c.LoadZoneMap()
	if errs := problems.Errors(); len(errs) > 0 {
		return nil, fmt.Errorf("read zoneMapFile: %s", errs[0])
	}
	z.entries = entries
	return entries, nil
}

// checkZoneMap takes a changed zone map file into force. A file with a bad
// line is refused as a whole and the map in force stays.
func (a *Appliance) checkZoneMap() {
	a.mu.Lock()
	seen := a.zoneMap.seen
	a.mu.Unlock()
	c := a.config.Load()
	if c.ZoneMapFile == "" || versionOf(c.ZoneMapFile) == seen {
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

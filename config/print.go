package config

import (
	"bytes"

	"gopkg.in/yaml.v3"
)

// YAML returns the complete configuration in its long form, with every default filled in and every name
// made. Parse reads it back to an equal Config.
func (c *Config) YAML() []byte {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(configTable.write(c)); err != nil {
		panic("config: printing failed: " + err.Error()) // nodes of our own making always print
	}
	return b.Bytes()
}

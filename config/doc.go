// Package config turns the YAML file into plain, validated data.
//
// Every object of the format has one table of keys. A row binds a key to a field of the data, with the
// kind of its value, its default and a sentence about it:
//
//	text ──yaml.Node──► tables ──► Config ──► checks across objects ──► warnings
//	                      │  └── (Config).YAML: the long form, every default filled in
//	                      └───── Schema: the same keys as JSON Schema
//
// Reading, defaults, printing and the schema all come from that row. Values are read as the text in the
// file and parsed here, so that each problem has a line and a column and says what is allowed; all
// problems of a file are found in one run. What concerns several objects (names, overlaps, families) is
// checked afterwards on the data, with the places remembered by the addresses of its fields.
//
// The package reads the file it is given and a zone map when asked, opens no socket and keeps no state.
// All functions may be called from any number of goroutines; a Config is not changed once returned.
package config

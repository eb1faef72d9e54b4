package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// name is an identifier of at most the given number of characters. The characters beyond letters, digits
// and "-" are those of the names that are made from addresses and ports.
func name(most int) kind[string] {
	allowed := fmt.Sprintf("1 to %d letters, digits and \"-._:/,[]\", starting with a letter, a digit, \":\" or \"[\"", most)
	return leaf(allowed, func(text string) (string, error) {
		for i, c := range text {
			plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == ':' || c == '['
			if !plain && (i == 0 || !strings.ContainsRune("-._/,]", c)) {
				return "", fmt.Errorf("%s is not a name; use %s", show(text), allowed)
			}
		}
		if text == "" || len(text) > most {
			return "", fmt.Errorf("%s has %d characters; use %s", show(text), len(text), allowed)
		}
		return text, nil
	}, word, schema{"type": "string", "minLength": 1, "maxLength": most, "pattern": `^[A-Za-z0-9:\[][-A-Za-z0-9._:/,\[\]]*$`})
}

const (
	maxName     = 128
	maxPartName = 63 // of what becomes part of made names and of metric labels in pairs
)

// label is a name of the public API's resources of health, an RFC 1035 label in lower case (section 2.3.1):
// it is part of paths that others read, and values carry over unchanged.
var label = leaf(allowedLabel, func(text string) (string, error) {
	if !labelPattern.MatchString(text) {
		lower := strings.ToLower(text)
		if lower != text && labelPattern.MatchString(lower) {
			return "", fmt.Errorf("%s is not a name; use %s (did you mean %s?)", show(text), allowedLabel, lower)
		}
		return "", fmt.Errorf("%s is not a name; use %s", show(text), allowedLabel)
	}
	return text, nil
}, word, schema{"type": "string", "pattern": labelPattern.String()})

const allowedLabel = `1 to 63 of a-z, 0-9 and "-", starting with a letter and not ending with "-"`

var labelPattern = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// text is any printable text of at most the given number of bytes.
func text(least, most int) kind[string] {
	allowed := fmt.Sprintf("%d to %d printable characters", least, most)
	return leaf(allowed, func(text string) (string, error) {
		for _, c := range text {
			if !strconv.IsPrint(c) {
				return "", fmt.Errorf("%s has a character that cannot be printed; use %s", show(text), allowed)
			}
		}
		if len(text) < least || len(text) > most {
			return "", fmt.Errorf("has %d characters; use %s", len(text), allowed)
		}
		return text, nil
	}, word, schema{"type": "string", "minLength": least, "maxLength": most})
}

// ascii is text as it goes over the wire in a probe, line ends included.
func ascii(most int) kind[string] {
	allowed := fmt.Sprintf("at most %d ASCII characters", most)
	return leaf(allowed, func(text string) (string, error) {
		if i := strings.IndexFunc(text, func(c rune) bool { return c > '~' || c == 0 || c == 0x7f }); i >= 0 {
			return "", fmt.Errorf("%s is not ASCII; use %s", show(text), allowed)
		}
		if len(text) > most {
			return "", fmt.Errorf("has %d characters; use %s", len(text), allowed)
		}
		return text, nil
	}, word, schema{"type": "string", "maxLength": most})
}

// path is a file's absolute path of at most the given number of bytes.
func path(most int, empty bool) kind[string] {
	allowed := fmt.Sprintf("an absolute path of at most %d characters", most)
	return leaf(allowed, func(text string) (string, error) {
		switch {
		case empty && text == "":
			return text, nil
		case !strings.HasPrefix(text, "/"), strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return "", fmt.Errorf("%s is not an absolute path; use %s", show(text), allowed)
		case len(text) > most:
			return "", fmt.Errorf("has %d characters; use %s", len(text), allowed)
		}
		return text, nil
	}, word, schema{"type": "string", "maxLength": most})
}

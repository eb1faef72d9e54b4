package config

import (
	"strconv"
	"strings"
)

// didYouMean returns " (did you mean X?)" for the nearest of the known words, or nothing when none is
// near: the same letters in another case, or few enough typing slips for the length of the word.
func didYouMean(word string, known []string) string {
	const most = 1000 // known words to look at: long files must not make many mistakes slow
	best, bestDistance := "", 1+min(2, len(word)/3)
	for _, k := range known[:min(len(known), most)] {
		if strings.EqualFold(strings.NewReplacer("-", "", "_", "").Replace(k), strings.NewReplacer("-", "", "_", "", " ", "").Replace(word)) {
			return " (did you mean " + k + "?)"
		}
		if dist := editDistance(strings.ToLower(word), strings.ToLower(k), bestDistance); dist < bestDistance {
			best, bestDistance = k, dist
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// editDistance is the number of single-letter insertions, deletions, replacements and swaps of
// neighbours between two words (optimal string alignment), or limit when there are at least as many.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(old[j+1]+1, row[j]+1, old[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
		older, old, row = old, row, older
	}
	return min(old[len(b)], limit)
}

// show makes a value of the file fit for one line of a message: bare when it is plain, quoted when not.
func show(text string) string {
	const most = 60
	plain := text != ""
	for _, c := range text {
		if c <= ' ' || c > '~' || strings.ContainsRune("\"';,", c) {
			plain = false
		}
	}
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	if plain {
		return text
	}
	return strconv.Quote(text)
}

// either joins words as in "a, b or c".
func either(words []string) string { return joined(words, "or") }

// all joins words as in "a, b and c".
func all(words []string) string { return joined(words, "and") }

func joined(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + last + " " + words[len(words)-1]
}

// some joins at most a handful of words and counts the rest.
func some(words []string) string {
	const most = 6
	if len(words) <= most {
		return all(words)
	}
	return strings.Join(words[:most], ", ") + " and " + strconv.Itoa(len(words)-most) + " more"
}

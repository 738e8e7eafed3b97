package sim

import (
	_ "embed"
	"strings"
)

//go:embed marks.txt
var marksText string

// Mark is a rare path that the code marks with assert.Reached.
type Mark struct {
	Name string
	// Beyond is why a run cannot get there, or empty.
	Beyond string
	// Rare is why a run may get there, and a thousand need not, or empty.
	Rare string
}

// Marks is the catalogue of them all, in marks.txt.
func Marks() []Mark {
	var out []Mark
	for line := range strings.Lines(marksText) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, beyond, _ := strings.Cut(line, " | ")
		why, rare := strings.CutPrefix(beyond, "rare: ")
		if rare {
			out = append(out, Mark{Name: name, Rare: why})
			continue
		}
		out = append(out, Mark{Name: name, Beyond: beyond})
	}
	return out
}

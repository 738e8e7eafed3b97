package determinism

import (
	"go/token"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// waiver is one //pawl: comment.
type waiver struct {
	pos    token.Pos
	rule   string
	reason string
	used   bool
}

// waivers are by file and line; a waiver covers its own line and the next.
type waivers map[string]map[int][]*waiver

func collectWaivers(pass *analysis.Pass) waivers {
	found := waivers{}
	for _, f := range pass.Files {
		for _, g := range f.Comments {
			for _, c := range g.List {
				w := parseWaiver(c.Text)
				if w == nil {
					continue
				}
				w.pos = c.Pos()
				at := pass.Fset.Position(c.Pos())
				if strings.HasSuffix(at.Filename, "_test.go") {
					continue
				}
				if found[at.Filename] == nil {
					found[at.Filename] = map[int][]*waiver{}
				}
				next := pass.Fset.Position(g.End()).Line + 1
				for _, line := range []int{at.Line, next} {
					found[at.Filename][line] = append(found[at.Filename][line], w)
				}
			}
		}
	}
	return found
}

// parseWaiver returns nil if the comment is no waiver.
func parseWaiver(comment string) *waiver {
	text, ok := strings.CutPrefix(comment, "//pawl:")
	if !ok {
		return nil
	}
	rule, reason, _ := strings.Cut(text, " ")
	if rule == "allow" {
		rule, reason, _ = strings.Cut(strings.TrimSpace(reason), " ")
	}
	// What analysistest expects of a line is written into its comments.
	reason, _, _ = strings.Cut(reason, "// want")
	return &waiver{rule: rule, reason: strings.TrimSpace(reason)}
}

func (ws waivers) waive(at token.Position, rule string) bool {
	for _, w := range ws[at.Filename][at.Line] {
		if w.rule == rule {
			w.used = true
			return true
		}
	}
	return false
}

// complain reports the waivers that do not say why, or that waive nothing, and
// returns how many there are in all.
func (ws waivers) complain(pass *analysis.Pass) int {
	seen := map[*waiver]bool{}
	for _, lines := range ws {
		for _, onLine := range lines {
			for _, w := range onLine {
				switch {
				case seen[w]:
				case w.reason == "":
					pass.Reportf(w.pos, "//pawl:%s without a reason: say why it is safe [waiver]", w.rule)
				case !w.used:
					pass.Reportf(w.pos, "//pawl:%s waives nothing here: remove it [waiver]", w.rule)
				}
				seen[w] = true
			}
		}
	}
	return len(seen)
}

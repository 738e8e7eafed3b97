package contest

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Write prints an outcome for people.
func (o Outcome) Write(out io.Writer) error {
	fmt.Fprintf(out, "%s  %s\n", o.Goal, o.Load)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\t")
	for _, metric := range o.columns {
		fmt.Fprintf(w, "%s\t", metric)
	}
	fmt.Fprintln(w)
	for _, line := range o.Lines {
		fmt.Fprintf(w, "%s\t", line.Entry)
		for _, metric := range o.columns {
			value, ok := line.Medians[metric]
			fmt.Fprintf(w, "%s\t", number(value, ok))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, v := range o.Verdicts {
		word := "missed"
		switch {
		case !v.Known:
			word = "unknown"
		case v.Met:
			word = "met"
		}
		fmt.Fprintf(out, "  %-7s  %s: %s\n", word, number(v.Value, v.Known), v.Text)
	}
	_, err := fmt.Fprintln(out)
	return err
}

// number prints three digits or more.
func number(value float64, known bool) string {
	switch {
	case !known:
		return "-"
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.3f", value)
}

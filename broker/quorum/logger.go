package quorum

import (
	"fmt"

	"github.com/pawlbroker/pawl/storage/assert"
)

// logger is raft's logger. What raft calls fatal is a failed assertion.
type logger struct{ line func(string) }

func (l logger) print(v ...any) {
	if l.line != nil {
		l.line(fmt.Sprint(v...))
	}
}

func (l logger) printf(format string, v ...any) {
	if l.line != nil {
		l.line(fmt.Sprintf(format, v...))
	}
}

func (l logger) Debug(v ...any)                   { l.print(v...) }
func (l logger) Debugf(format string, v ...any)   { l.printf(format, v...) }
func (l logger) Info(v ...any)                    { l.print(v...) }
func (l logger) Infof(format string, v ...any)    { l.printf(format, v...) }
func (l logger) Warning(v ...any)                 { l.print(v...) }
func (l logger) Warningf(format string, v ...any) { l.printf(format, v...) }
func (l logger) Error(v ...any)                   { l.print(v...) }
func (l logger) Errorf(format string, v ...any)   { l.printf(format, v...) }
func (l logger) Fatal(v ...any)                   { fail(fmt.Sprint(v...)) }
func (l logger) Fatalf(format string, v ...any)   { fail(fmt.Sprintf(format, v...)) }
func (l logger) Panic(v ...any)                   { fail(fmt.Sprint(v...)) }
func (l logger) Panicf(format string, v ...any)   { fail(fmt.Sprintf(format, v...)) }

func fail(what string) { panic(&assert.Failure{What: "raft: " + what}) }

package strict

import (
	"bytes"
	"strconv"
)

// check refuses what encoding/json lets pass although no caller can have meant it: a field twice,
// a field in capitals, null, an empty string, and half of a surrogate pair, which would make
// different subjects the same. Only the outer levels of nesting are looked at. The data must be
// valid JSON that starts with an object.
func check(data []byte, levels int) error {
	w := walk{frames: make([]frame, 0, 4), names: make([][]byte, 0, 8)} // most need no more
	for at := 0; at < len(data); at++ {
		switch data[at] {
		case '{', '[':
			w.open(data[at] == '{')
		case '}', ']':
			w.close()
		case ':':
			w.frames[len(w.frames)-1].key = false
		case ',':
			top := &w.frames[len(w.frames)-1]
			top.key = top.object
		case '"':
			end := stringEnd(data, at)
			if len(w.frames) <= levels {
				err := w.text(data[at+1 : end])
				if err != nil {
					return err
				}
			}
			at = end
		case 'n': // of null: no other word and no number has one
			if len(w.frames) <= levels {
				return refused("%s: null is no value", w.field())
			}
		}
	}
	return nil
}

// walk is where check is.
type walk struct {
	frames []frame
	names  [][]byte // of the fields met in the open objects, those of the innermost last
}

// freeNames is the field whose object has names that a config chose.
const freeNames = "fields"

// frame is an object or array that is open.
type frame struct {
	object bool
	free   bool // its fields have names that are not ours
	key    bool // the next string is a field's name
	first  int  // where its fields start in names
}

func (w *walk) open(object bool) {
	free := len(w.names) > 0 && string(w.names[len(w.names)-1]) == freeNames
	w.frames = append(w.frames, frame{object: object, key: object, free: free, first: len(w.names)})
}

func (w *walk) close() {
	top := len(w.frames) - 1
	w.names = w.names[:w.frames[top].first]
	w.frames = w.frames[:top]
}

// field names the field that a value belongs to.
func (w *walk) field() string {
	if len(w.names) == 0 {
		return "the body"
	}
	return w.path(w.names[len(w.names)-1])
}

// path is how a caller knows a field of the innermost object.
func (w *walk) path(name []byte) string {
	if w.frames[len(w.frames)-1].free {
		return freeNames + "." + string(name)
	}
	return string(name)
}

// text looks at what is between the quotes of a string.
func (w *walk) text(s []byte) error {
	top := w.frames[len(w.frames)-1]
	switch {
	case top.key:
		return w.name(s, top)
	case len(s) == 0:
		return refused("%s: an empty string is no value", w.field())
	case bytes.IndexByte(s, '\\') >= 0 && halfPair(s):
		return refused("%s: half of a surrogate pair is no character", w.field())
	}
	return nil
}

// name looks at the name of a field. Ours are made of lower-case letters; encoding/json would take
// others for them. Others may have any character, but not written as an escape, which would make
// two names of one.
func (w *walk) name(s []byte, top frame) error {
	for _, c := range s {
		if c == '\\' || !top.free && (c < 'a' || c > 'z') && c != '_' {
			return refused("unknown field %q", Clip(string(s)))
		}
	}
	for _, known := range w.names[top.first:] {
		if bytes.Equal(known, s) {
			return refused("field %q is given twice", w.path(s))
		}
	}
	w.names = append(w.names, s)
	return nil
}

// stringEnd returns where the string that starts at at has its closing quote.
func stringEnd(data []byte, at int) int {
	for at++; data[at] != '"'; at++ {
		if data[at] == '\\' {
			at++
		}
	}
	return at
}

// halfPair reports whether a string has an escape for half of a surrogate pair without the other.
func halfPair(s []byte) bool {
	for at := 0; at < len(s); at++ {
		if s[at] != '\\' {
			continue
		}
		at++
		if s[at] != 'u' {
			continue
		}
		unit := codeUnit(s[at+1:])
		at += 4
		if unit < 0xD800 || unit > 0xDFFF {
			continue
		}
		rest := s[at+1:]
		if unit > 0xDBFF || !bytes.HasPrefix(rest, []byte(`\u`)) {
			return true
		}
		second := codeUnit(rest[2:])
		if second < 0xDC00 || second > 0xDFFF {
			return true
		}
		at += 6
	}
	return false
}

// codeUnit reads the four hex digits that JSON has after \u.
func codeUnit(s []byte) uint64 {
	unit, _ := strconv.ParseUint(string(s[:4]), 16, 16)
	return unit
}

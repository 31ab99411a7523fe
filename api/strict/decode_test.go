package strict_test

import (
	"errors"
	"testing"

	"weir/api/strict"
)

type Body struct {
	Name string         `json:"name"`
	More map[string]any `json:"more"`
}

func TestDecode(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		var b Body
		err := strict.Decode([]byte(` {"name":"\ud83e\udda6","more":{"a":"b"}} `), 8, &b)
		if err != nil || b.Name != "🦦" || b.More["a"] != "b" {
			t.Errorf("got %+v and error %v", b, err)
		}
	})
	t.Run("Levels", func(t *testing.T) { // what is deeper is not looked at
		var b Body
		err := strict.Decode([]byte(`{"more":{"a":null}}`), 1, &b)
		if err != nil {
			t.Errorf("got error %v", err)
		}
	})
	t.Run("FreeNames", func(t *testing.T) { // which are a config's
		var b struct {
			Fields map[string]string `json:"fields"`
			ID     string            `json:"id"`
		}
		err := strict.Decode([]byte(`{"fields":{"User-ID.2":"a","é":"b"},"id":"x"}`), 8, &b)
		if err != nil || len(b.Fields) != 2 || b.ID != "x" {
			t.Errorf("got %+v and error %v", b, err)
		}
		for text, want := range map[string]string{
			`{"fields":{"a":"b","a":"c"}}`:         `field "fields.a" is given twice`,
			`{"fields":{"a":"b","\u0061":"c"}}`:    `unknown field "\\u0061"`,
			`{"fields":{"a":null}}`:                "fields.a: null is no value",
			`{"fields":{"b":""}}`:                  "fields.b: an empty string is no value",
			`{"id":"a:b","fields":{"a":1}}`:        "fields.a: want a string, not number",
			` {"fields":{"x":"y", "a" : {"c":1}}}`: "fields.a: want a string, not object",
			`{"fields":{"a":["b"],"d":"e"}}`:       "fields.a: want a string, not array",
			`{"fields":{"x":"\"y\":","a":true}}`:   "fields.a: want a string, not bool",
			`{"fields":[]}`:                        "fields: want an object, not array",
			`{"fields":null}`:                      "fields: null is no value",
			`{"fields":{"a":"b"},"id":1}`:          "id: want a string, not number",
			`{"fields":{"A":"b"},"id":"x","X":1}`:  `unknown field "X"`,
		} {
			err := strict.Decode([]byte(text), 8, &b)
			if err == nil || err.Error() != want {
				t.Errorf("%s: got error %v, want %s", text, err, want)
			}
		}
	})
	for name, test := range map[string]struct{ text, want string }{
		"ErrEmpty":   {``, "the body is empty: want a JSON object"},
		"ErrEnd":     {`{"name":"a"`, "the body ends within its JSON object"},
		"ErrMore":    {`{} {}`, "the body goes on after its JSON object"},
		"ErrUTF8":    {"{\"name\":\"\xff\"}", "the body is not UTF-8"},
		"ErrTwice":   {`{"name":"a","name":"b"}`, `field "name" is given twice`},
		"ErrCapital": {`{"Name":"a"}`, `unknown field "Name"`},
		"ErrUnknown": {`{"x":1}`, `unknown field "x"`},
		"ErrNull":    {`{"more":{"a":null}}`, "a: null is no value"},
		"ErrType":    {`{"name":1}`, "name: want a string, not number"},
		"ErrHalf":    {`{"name":"\ud83e"}`, "name: half of a surrogate pair is no character"},
	} {
		t.Run(name, func(t *testing.T) {
			var b Body
			err := strict.Decode([]byte(test.text), 8, &b)
			var refused strict.Error
			if !errors.As(err, &refused) || err.Error() != test.want {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
}

// The name of a type of ours is nobody's business.
func TestDecodeEmbedded(t *testing.T) {
	var b struct {
		Body
		Seconds int64 `json:"seconds"`
	}
	err := strict.Decode([]byte(`{"seconds":1,"name":2}`), 8, &b)
	if err == nil || err.Error() != "name: want a string, not number" {
		t.Errorf("got error %v", err)
	}
}

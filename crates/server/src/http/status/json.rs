//! Writes JSON.

use std::fmt::Write;

/// A growing text in JSON.
#[derive(Default)]
pub struct Json {
    out: String,
    /// A value precedes at this level: a comma comes next.
    follows: bool,
}

impl Json {
    /// The text.
    pub fn into_text(self) -> String {
        self.out
    }

    /// Writes the text in front of a value, unless the key has written the text.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.follows, true) {
            self.out.push(',');
        }
    }

    /// The key of the next value.
    pub fn key(&mut self, name: &str) -> &mut Json {
        self.text(name);
        self.out.push(':');
        self.follows = false;
        self
    }

    fn group(&mut self, ends: [char; 2], inside: impl FnOnce(&mut Json)) {
        self.begin();
        self.out.push(ends[0]);
        self.follows = false;
        inside(self);
        self.out.push(ends[1]);
        self.follows = true;
    }

    /// An object; `inside` writes the keys and values.
    pub fn object(&mut self, inside: impl FnOnce(&mut Json)) {
        self.group(['{', '}'], inside);
    }

    /// A list of values, each written by `each`.
    pub fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Json, T),
    ) {
        self.group(['[', ']'], |out| items.into_iter().for_each(|item| each(out, item)));
    }

    /// The value written by `write`, or null.
    pub fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Json, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.digits("null"),
        }
    }

    /// A number; null if JSON cannot express the number.
    pub fn number(&mut self, number: f64) {
        match number.is_finite() {
            true => self.digits(&number.to_string()),
            false => self.digits("null"),
        }
    }

    /// A number in its written form.
    pub fn digits(&mut self, digits: &str) {
        self.begin();
        self.out.push_str(digits);
    }

    /// A string.
    pub fn text(&mut self, text: impl AsRef<str>) {
        self.begin();
        self.out.push('"');
        for c in text.as_ref().chars() {
            match c {
                '"' | '\\' => self.out.extend(['\\', c]),
                c if c.is_control() => {
                    // Writing to a text cannot fail; control characters have four digits.
                    let _ = write!(self.out, "\\u{:04x}", u32::from(c));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn objects_lists_and_null() {
        let mut out = Json::default();
        out.object(|out| {
            out.key("a").list([1.5, f64::INFINITY], |out, number| out.number(number));
            out.key("b").object(|_| {});
            out.key("c").optional(None, |out, text: &str| out.text(text));
            out.key("d")
                .list([[1.0], [2.0]], |out, numbers| out.list(numbers, |out, n| out.number(n)));
            out.key("e").digits("18446744073709551615");
        });
        let text = r#"{"a":[1.5,null],"b":{},"c":null,"d":[[1],[2]],"e":18446744073709551615}"#;
        assert_eq!(out.into_text(), text);
    }

    proptest! {
        #[test]
        fn any_text_reads_back(key in any::<String>(), text in any::<String>()) {
            let mut out = Json::default();
            out.object(|out| out.key(&key).text(&text));
            let read: serde_json::Value = serde_json::from_str(&out.into_text()).unwrap();
            prop_assert_eq!(read[&key].as_str(), Some(&text[..]));
        }
    }
}

//! Parses the text of a record, with everything that this version needs.

use gpumem_core::Precision;
use gpumem_core::cards::{Card, find};
use gpumem_core::report::Written;
use gpumem_core::train::Train;
use serde_json::Value;

/// The contents of a record.
pub struct Facts {
    pub name: String,
    /// The file as the compiler got it, and a line.
    pub place: (String, u64),
    pub is_generic: bool,
    /// The place of the network that an instance is of. `None` in records of versions that did not write it.
    pub of: Option<(String, u64)>,
    /// The `fits!` that an instance is in, if that names cards or several networks.
    pub fits: Option<Fits>,
    pub train: Program,
    pub infer: Program,
}

/// A program of a network, according to its record.
pub struct Program {
    /// The settings of the constant. `None` if there is no such constant.
    pub written: Option<Written>,
    /// The batch of the program. `None` if it is not known, or the record has no such program.
    pub batch: Option<u64>,
    /// The name of the training step, if it has one of its own. Of several steps, this is the largest.
    pub step: Option<String>,
}

/// The position of an instance in a `fits!` that names cards or several networks.
pub struct Fits {
    /// The line and the column of the `fits!`.
    pub place: [u64; 2],
    pub index: u64,
    pub count: u64,
    /// The cards that it asks about: those that it names, or else those of Cargo features.
    pub cards: Vec<&'static Card>,
}

impl Facts {
    /// Parses the text of a record. Fails with the first thing that is missing, or that this version does not know.
    pub fn read(text: &str) -> Result<Facts, String> {
        let all: Value = serde_json::from_str(text).map_err(|_| "its text is no JSON".to_string())?;
        let all = Object { value: &all, path: String::new() };
        let selected = cards(&all, "selected")?;
        let settings = all.object("settings")?;
        let program = |name: &str| -> Result<Program, String> {
            let written = settings.object_or_null(name)?.map(|settings| written(&settings, &selected)).transpose()?;
            let program = all.object_or_null(name)?;
            let batch = program.as_ref().map(|program| program.number("batch")).transpose()?;
            let step = program.and_then(|program| program.value.get("step")?.as_str().map(String::from));
            let written = written.map(|written| Written { batch, ..written });
            Ok(Program { written, batch, step })
        };
        Ok(Facts {
            name: all.text("name")?.to_string(),
            place: place(&all)?,
            is_generic: all.get("generic", Value::as_bool)?,
            of: all.object_or_none("of")?.map(|of| place(&of)).transpose()?,
            fits: all.object_or_none("fits")?.map(|fits| asked(&fits, &selected)).transpose()?,
            train: program("train")?,
            infer: program("infer")?,
        })
    }
}

/// An object of a record, with the path to it for messages: `settings.`.
struct Object<'v> {
    value: &'v Value,
    path: String,
}

impl<'v> Object<'v> {
    fn get<T>(&self, key: &str, read: impl Fn(&'v Value) -> Option<T>) -> Result<T, String> {
        let lacks = || format!("it has no `{}{key}` that can be read", self.path);
        self.value.get(key).and_then(read).ok_or_else(lacks)
    }

    fn text(&self, key: &str) -> Result<&'v str, String> {
        self.get(key, Value::as_str)
    }

    fn number(&self, key: &str) -> Result<u64, String> {
        self.get(key, Value::as_u64)
    }

    fn object(&self, key: &str) -> Result<Object<'v>, String> {
        let value = self.get(key, |value| value.is_object().then_some(value))?;
        Ok(Object { value, path: format!("{}{key}.", self.path) })
    }

    /// Returns an object, or `None` if the value is `null`.
    fn object_or_null(&self, key: &str) -> Result<Option<Object<'v>>, String> {
        if self.value.get(key).is_some_and(Value::is_null) { Ok(None) } else { self.object(key).map(Some) }
    }

    /// Returns an object, or `None` if the key is missing.
    fn object_or_none(&self, key: &str) -> Result<Option<Object<'v>>, String> {
        if self.value.get(key).is_none() { Ok(None) } else { self.object(key).map(Some) }
    }
}

fn place(all: &Object<'_>) -> Result<(String, u64), String> {
    Ok((all.text("file")?.to_string(), all.number("line")?))
}

fn cards(all: &Object<'_>, key: &str) -> Result<Vec<&'static Card>, String> {
    let slugs = all.get(key, Value::as_array)?;
    let card = |slug: &Value| {
        find(slug.as_str().unwrap_or_default())
            .ok_or_else(|| format!("it names the card {slug}, which is not known here"))
    };
    slugs.iter().map(card).collect()
}

/// Reads the settings of a constant. As in the compiler, its cards are those in `cards:` and those of Cargo features.
fn written(settings: &Object<'_>, selected: &[&'static Card]) -> Result<Written, String> {
    let mut all: Vec<&'static Card> = Vec::new();
    for card in cards(settings, "cards")?.into_iter().chain(selected.iter().copied()) {
        if !all.iter().any(|known| known.slug == card.slug) {
            all.push(card);
        }
    }
    let name = settings.text("precision")?;
    let precision = Precision::ALL.into_iter().find(|precision| precision.name() == name);
    let workspace = settings.value.get("conv_workspace").and_then(Value::as_u64);
    Ok(Written {
        batch: None,
        precision: precision.ok_or_else(|| format!("its precision is `{name}`, which is not known here"))?,
        headroom: settings.number("headroom")?,
        // `INFER` has no such field.
        convolution_workspace: workspace.unwrap_or(Train::DEFAULT.conv_workspace),
        cards: all,
    })
}

fn asked(fits: &Object<'_>, selected: &[&'static Card]) -> Result<Fits, String> {
    let named = cards(fits, "cards")?;
    Ok(Fits {
        place: [fits.number("line")?, fits.number("column")?],
        index: fits.number("index")?,
        count: fits.number("count")?,
        cards: if named.is_empty() { selected.to_vec() } else { named },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"{"name":"Net","file":"src/net.rs","line":12,"generic":false,"of":{"file":"src/net.rs","line":3},
        "fits":{"line":40,"column":7,"index":1,"count":2,"cards":["t4"]},"selected":["l4"],
        "settings":{"train":{"precision":"F32","headroom":5,"conv_workspace":7,"cards":["t4"]},"infer":null},
        "train":{"batch":64},"infer":{"batch":1}}"#;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let facts = Facts::read(RECORD).unwrap();
        assert_eq!((facts.name.as_str(), facts.is_generic), ("Net", false));
        assert_eq!(facts.place, ("src/net.rs".to_string(), 12));
        assert_eq!(facts.of, Some(("src/net.rs".to_string(), 3)));
        let train = facts.train.written.unwrap();
        let slugs = |cards: &[&'static Card]| cards.iter().map(|card| card.slug).collect::<Vec<_>>();
        assert_eq!((train.batch, train.headroom, train.convolution_workspace), (Some(64), 5, 7));
        assert_eq!(slugs(&train.cards), ["t4", "l4"]);
        assert!(facts.infer.written.is_none() && facts.infer.batch == Some(1));
        let fits = facts.fits.unwrap();
        assert_eq!((fits.place, fits.index, fits.count, slugs(&fits.cards)), ([40, 7], 1, 2, vec!["t4"]));
    }

    /// Whatever is missing or of another kind is named, and nothing panics: such a record has a right digest.
    #[test]
    fn what_another_version_wrote_otherwise_is_named() {
        for (from, to, expected) in [
            (r#""name":"Net","#, "", "it has no `name` that can be read"),
            (r#""line":12"#, r#""line":"12""#, "it has no `line` that can be read"),
            (r#""generic":false"#, r#""generic":0"#, "it has no `generic` that can be read"),
            (r#","line":3}"#, "}", "it has no `of.line` that can be read"),
            (r#""of":{"#, r#""of":3,"ofs":{"#, "it has no `of` that can be read"),
            (r#""count":2,"#, "", "it has no `fits.count` that can be read"),
            (r#""selected":["l4"],"#, "", "it has no `selected` that can be read"),
            (r#""selected":["l4"]"#, r#""selected":["l5"]"#, "it names the card \"l5\", which is not known here"),
            (r#""selected":["l4"]"#, r#""selected":[4]"#, "it names the card 4, which is not known here"),
            (r#""settings""#, r#""setting""#, "it has no `settings` that can be read"),
            (r#""precision":"F32","#, "", "it has no `settings.train.precision` that can be read"),
            (r#""precision":"F32""#, r#""precision":"F8""#, "its precision is `F8`, which is not known here"),
            (r#""headroom":5,"#, "", "it has no `settings.train.headroom` that can be read"),
            (r#","cards":["t4"]},"infer""#, r#"},"infer""#, "it has no `settings.train.cards` that can be read"),
            (r#","infer":null"#, "", "it has no `settings.infer` that can be read"),
            (r#""train":{"batch":64}"#, r#""train":{}"#, "it has no `train.batch` that can be read"),
            (r#","infer":{"batch":1}"#, "", "it has no `infer` that can be read"),
            ("{", "[", "its text is no JSON"),
        ] {
            let changed = RECORD.replacen(from, to, 1);
            assert_ne!(changed, RECORD, "{from}");
            assert_eq!(Facts::read(&changed).err().as_deref(), Some(expected), "{from}");
        }
        for whole in ["", "null", "[]", "3", "\"Net\"", "{}"] {
            assert!(Facts::read(whole).is_err(), "{whole}");
        }
    }
}

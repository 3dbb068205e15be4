//! The signature of a layer: its arguments, with their names and places.

use alloc::string::String;
use alloc::vec::Vec;

/// The place of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the others. It may be left out, and is only checked.
    Leading,
    /// In order. It must be there.
    Required,
    /// In order, as one value or several one after another. It must be there.
    Several,
    /// After the others. It may be left out.
    Trailing,
    /// By name only.
    Option,
}

/// An argument that a layer asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The name.
    pub name: &'static str,
    /// Its place.
    pub place: Place,
    /// Its kind, in the words of messages.
    pub wanted: String,
    /// The value if it is left out. `None` if there is no such value.
    pub default: Option<String>,
}

/// The arguments that a layer takes, in the order in which it asks for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature(pub Vec<Asked>);

impl Signature {
    fn at(&self, places: &[Place]) -> Vec<&'static str> {
        self.0.iter().filter(|asked| places.contains(&asked.place)).map(|asked| asked.name).collect()
    }

    /// Returns the ways to write the arguments before the options, the shortest first.
    pub fn forms(&self) -> Vec<Vec<&'static str>> {
        let mut forms = Vec::new();
        let whole = self.at(&[Place::Required, Place::Several]);
        forms.push(whole.clone());
        for trailing in self.at(&[Place::Trailing]) {
            let mut form = forms.last().cloned().unwrap_or_default();
            form.push(trailing);
            forms.push(form);
        }
        for leading in self.at(&[Place::Leading]) {
            let mut form = alloc::vec![leading];
            form.extend(&whole);
            forms.push(form);
        }
        forms
    }

    /// Returns the arguments that must be there.
    pub fn required(&self) -> Vec<&'static str> {
        self.at(&[Place::Required, Place::Several])
    }

    /// Returns the argument that may be several values one after another. `None` if there is none.
    pub(super) fn several(&self) -> Option<&'static str> {
        self.at(&[Place::Several]).pop()
    }

    /// Returns the arguments that are given by name only.
    pub fn options(&self) -> Vec<&'static str> {
        self.at(&[Place::Option])
    }

    /// Returns the names of all arguments.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|asked| asked.name).collect()
    }
}

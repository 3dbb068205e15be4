//! What a layer asks for: its arguments, their names and places.

use alloc::string::String;
use alloc::vec::Vec;

/// Where an argument stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the others, where it may be left out: it is only checked.
    Leading,
    /// In its place.
    Required,
    /// The same, and it may be several that stand there one after another.
    Several,
    /// After the others, where it may be left out.
    Trailing,
    /// By its name.
    Option,
}

/// An argument that a layer asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The name.
    pub name: &'static str,
    /// Where it stands.
    pub place: Place,
    /// What it must be.
    pub wanted: String,
    /// What it is where it is left out, if that is a value.
    pub default: Option<String>,
}

/// The arguments that a layer takes, in the order in which it asks for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature(pub Vec<Asked>);

impl Signature {
    fn at(&self, places: &[Place]) -> Vec<&'static str> {
        self.0.iter().filter(|asked| places.contains(&asked.place)).map(|asked| asked.name).collect()
    }

    /// The ways to write the arguments in front of the options, shortest first.
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

    /// Everything that must be there.
    pub fn required(&self) -> Vec<&'static str> {
        self.at(&[Place::Required, Place::Several])
    }

    /// What may be several that stand one after another.
    pub(super) fn several(&self) -> Option<&'static str> {
        self.at(&[Place::Several]).pop()
    }

    /// Everything that is given by name only.
    pub fn options(&self) -> Vec<&'static str> {
        self.at(&[Place::Option])
    }

    /// Everything that it takes.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|asked| asked.name).collect()
    }
}

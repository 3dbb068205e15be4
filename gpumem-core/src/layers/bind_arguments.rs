//! Binds written values to the arguments of a signature: first by name, then by place.

use super::arguments::{Argument, Arguments, Place, Signature};
use super::mistake::{Arity, At, Kind, Mistake, NoOption};
use crate::suggest::nearest;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl Arguments<'_> {
    /// Finds the argument for every written value. A value that fits none is ignored.
    pub(super) fn match_all(&mut self, signature: &Signature) {
        let unknown = self.match_names(signature);
        // A value with an unknown name takes no place from the values without a name.
        let form = self.form(signature, &self.unnamed(true));
        if let Some(form) = form {
            self.place(&self.unnamed(true), &form);
            self.match_near(&unknown, signature);
            return;
        }
        self.match_near(&unknown, signature);
        // A value that could not be evaluated may be anything, or one too many.
        let ways = [self.unnamed(true), self.unnamed(false)];
        match ways.into_iter().find_map(|unnamed| Some((self.form(signature, &unnamed)?, unnamed))) {
            Some((form, unnamed)) => self.place(&unnamed, &form),
            None => self.match_wrong_count(&unknown, signature),
        }
    }

    /// Checks that the layer knows every name, and that each is given once. Returns the unknown ones.
    fn match_names(&mut self, signature: &Signature) -> Vec<usize> {
        let known = signature.names();
        let mut unknown = Vec::new();
        for (index, written) in self.written.iter().enumerate() {
            let Some(name) = &written.name else { continue };
            if self.written[..index].iter().any(|earlier| earlier.name.as_ref() == Some(name)) {
                self.mistakes.push(Mistake { at: At::Written(index), kind: Kind::Repeated(name.clone()) });
                continue;
            }
            self.names[index] = known.iter().copied().find(|known| known == name);
            if self.names[index].is_none() {
                unknown.push(index);
            }
        }
        unknown
    }

    /// Takes each unknown name for the nearest name that is free.
    fn match_near(&mut self, unknown: &[usize], signature: &Signature) {
        for &index in unknown {
            let given = self.written[index].name.clone().unwrap_or_default();
            let free: Vec<&'static str> =
                signature.names().into_iter().filter(|name| !self.names.contains(&Some(*name))).collect();
            let meant = nearest(&given, &free);
            if let Some(meant) = meant {
                self.take_as(index, meant, signature);
            }
            let (forms, options) = (signature.forms(), signature.options());
            let kind = Kind::NoOption(NoOption { given, meant, forms, options }.into());
            self.mistakes.push(Mistake { at: At::Written(index), kind });
        }
    }

    /// Takes a written value for the argument that was probably meant. If that is an option, another reading is that it was none.
    fn take_as(&mut self, index: usize, meant: &'static str, signature: &Signature) {
        let is_option = !signature.required().contains(&meant);
        self.guessed.reading |= is_option;
        if !(is_option && self.guess.second) {
            self.names[index] = Some(meant);
            self.assumed.push(index);
        }
    }

    /// Returns the values that were written without a name, with or without those that could not be evaluated.
    fn unnamed(&self, with_unknown: bool) -> Vec<usize> {
        let counts = |index: &usize| with_unknown || self.written[*index].value != Argument::Unknown;
        (0..self.written.len()).filter(|&index| self.written[index].name.is_none()).filter(counts).collect()
    }

    /// Returns the form of the layer with so many arguments in their places, and all others given by name. `None` if there is none.
    fn form(&self, signature: &Signature, unnamed: &[usize]) -> Option<Vec<&'static str>> {
        let is_named = |name: &&'static str| self.names.contains(&Some(*name));
        let fits = |form: &Vec<&'static str>| {
            let (given, rest) = form.split_at(unnamed.len().min(form.len()));
            given.len() == unnamed.len() && !given.iter().any(is_named) && rest.iter().all(is_named)
        };
        let longer = |form: &Vec<&'static str>| {
            let last = signature.several().filter(|several| form.last() == Some(several))?;
            let more = unnamed.len().checked_sub(form.len()).filter(|_| !form.iter().any(is_named))?;
            Some(form.iter().copied().chain(core::iter::repeat_n(last, more)).collect())
        };
        let forms = signature.forms();
        forms.iter().find(|form| fits(form)).cloned().or_else(|| forms.iter().find_map(longer))
    }

    fn place(&mut self, unnamed: &[usize], form: &[&'static str]) {
        for (&index, name) in unnamed.iter().zip(form) {
            self.names[index] = Some(name);
        }
    }

    /// Binds arguments if no form has as many of them. Takes the first ones for those of the nearest form, and those that are left for
    /// options, which come next in PyTorch's signature.
    fn match_wrong_count(&mut self, unknown: &[usize], signature: &Signature) {
        let unnamed = self.unnamed(true);
        let is_named = |name: &&'static str| self.names.contains(&Some(*name));
        let forms = signature.forms();
        let free: Vec<Vec<&'static str>> = forms.iter().filter(|form| !form.iter().any(is_named)).cloned().collect();
        let longest = free.iter().max_by_key(|form| form.len()).cloned();
        let mut extras = Vec::new();
        let mut missing = Vec::new();
        match longest.filter(|longest| longest.len() < unnamed.len()) {
            Some(longest) => {
                self.place(&unnamed, &longest);
                extras = self.extras(&unnamed[longest.len()..], signature);
            }
            None => {
                let open: Vec<&'static str> = signature.required().into_iter().filter(|name| !is_named(name)).collect();
                self.place(&unnamed, &open);
                if self.written.iter().any(|written| written.name.is_some()) {
                    missing = open.into_iter().skip(unnamed.len()).collect();
                }
            }
        }
        // An unknown name was probably meant for a missing argument; so was a value that could not be evaluated.
        let is_left_out = unknown.iter().any(|&index| self.names[index].is_none());
        let is_broken = self.written.iter().any(|written| written.value == Argument::Unknown);
        if !is_left_out && !is_broken {
            let options = signature.options();
            let arity = Arity { forms, given: unnamed.len(), missing, extras, options };
            self.mistakes.push(Kind::Arity(arity.into()).into());
        }
    }

    /// Returns the options that superfluous values stand for in PyTorch, as they would be written.
    fn extras(&mut self, indices: &[usize], signature: &Signature) -> Vec<String> {
        let options = signature.0.iter().filter(|asked| asked.place == Place::Option);
        let mut written = Vec::new();
        for (&index, asked) in indices.iter().zip(options) {
            let value = &self.written[index].value;
            let is_flag = asked.default.as_deref().is_some_and(|default| ["true", "false"].contains(&default));
            if is_flag != matches!(value, Argument::Flag(_)) || self.names.contains(&Some(asked.name)) {
                return Vec::new();
            }
            written.push([asked.name, &value.to_string()].join(" = "));
        }
        if written.len() < indices.len() {
            return Vec::new();
        }
        let names: Vec<&'static str> = signature.options();
        for (&index, name) in indices.iter().zip(names) {
            self.take_as(index, name, signature);
        }
        written
    }
}

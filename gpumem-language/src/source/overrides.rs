//! Fields of `TRAIN` and `INFER` that a caller gives instead of those of a text.

use crate::settings::train::INFER_FIELDS;
use crate::settings::values::{is_name, literal};
use crate::syntax::{Field, Settings, Source};
use gpumem_core::cards::Card;
use gpumem_core::suggest::nearest;
use gpumem_core::train::optim::Optimizer;
use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;

/// Fields that replace those of a text, as if they were written there.
///
/// A field that `INFER` has too replaces both. A network without constants gets a `TRAIN` if one of the fields is of training alone.
///
/// ```
/// use gpumem_language::source::{Overrides, declared};
///
/// let text = "pub struct Mlp; fn forward(x: Features<64>) -> Logits<10> { [Linear(128), Relu, Linear(10)] }";
/// let mut overrides = Overrides::default();
/// overrides.set("batch", "32").unwrap();
/// overrides.set("optimizer", "AdamW { lr: 1e-3 }").unwrap();
/// let network = declared(text, &overrides).unwrap();
/// assert_eq!(network.train.unwrap().batch, Some(32));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    fields: Vec<Override>,
}

/// A field and its value, as texts that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Override {
    name: String,
    value: String,
    /// True if a constant that has this field keeps its own value.
    is_default: bool,
}

impl Overrides {
    /// Sets a field to a value, written as in `TRAIN`. A later value replaces an earlier one.
    ///
    /// # Errors
    /// The name or the value cannot be read. Values that the field cannot have are reported with the network.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.give(name, value, false)
    }

    /// Sets a field of constants that lack it. Others keep their own value.
    ///
    /// # Errors
    /// See [`Overrides::set`].
    pub fn set_default(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.give(name, value, true)
    }

    fn give(&mut self, name: &str, value: &str, is_default: bool) -> Result<(), String> {
        let unreadable = |error: syn::Error| format!("`{name}: {value}` cannot be read: {error}");
        let parsed = Ident::parse_any.parse_str(name).map_err(unreadable)?;
        syn::parse_str::<syn::Expr>(value).map_err(unreadable)?;
        let name = parsed.unraw().to_string();
        self.fields.retain(|given| given.name != name);
        self.fields.push(Override { name, value: value.to_string(), is_default });
        Ok(())
    }

    /// Sets the optimizer: as in `TRAIN`, or by its name alone in any case, such as `adamw`. What is left out has PyTorch's default.
    ///
    /// # Errors
    /// No optimizer has this name, or the text cannot be read.
    pub fn set_optimizer(&mut self, text: &str) -> Result<(), String> {
        if text.contains('{') {
            return self.set("optimizer", text);
        }
        let plain = |name: &str| name.trim().to_lowercase().replace(['-', '_'], "");
        if let Some(row) = Optimizer::ROWS.iter().find(|row| plain(row.name) == plain(text)) {
            return self.set("optimizer", &format!("{} {{}}", row.name));
        }
        let names: Vec<&str> = Optimizer::ROWS.iter().map(|row| row.name).collect();
        let hint = match nearest(text, &names) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", names.join(", ")),
        };
        Err(format!("no optimizer is called {text}; {hint}"))
    }

    /// Returns the value of a field, as it is written in `TRAIN`. `None` if the field was not set.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|given| given.name == name).map(|given| given.value.as_str())
    }

    /// Sets what is recomputed: as in `TRAIN`, in any case, such as `auto` or `budget(0.5)`.
    ///
    /// # Errors
    /// The text is none of them.
    pub fn set_checkpoint(&mut self, text: &str) -> Result<(), String> {
        let (name, rest) = text.trim().split_at(text.trim().find('(').unwrap_or(text.trim().len()));
        let number = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let has_number = number.is_some_and(|number| number.parse::<f64>().is_ok());
        let known = [("None", false), ("Norms", false), ("Cheap", false), ("Auto", false), ("Budget", true)];
        let is_it = |(known, takes_number): &(&str, bool)| {
            known.eq_ignore_ascii_case(name) && if *takes_number { has_number } else { rest.is_empty() }
        };
        let (name, _) = known.into_iter().find(is_it).ok_or("write None, Norms, Cheap, Auto or Budget(0.5)")?;
        self.set("checkpoint", &format!("{name}{rest}"))
    }

    /// Sets the cards.
    pub fn set_cards(&mut self, cards: &[&Card]) {
        let names: Vec<&str> = cards.iter().map(|card| card.constant).collect();
        self.fields.retain(|given| given.name != "cards");
        self.fields.push(Override {
            name: "cards".into(),
            value: format!("[{}]", names.join(", ")),
            is_default: false,
        });
    }

    /// Returns the value of `batch`, if that is a number.
    pub(super) fn samples(&self) -> Option<u64> {
        literal(&self.value("batch")?)
    }

    /// True for `batch: Largest`.
    pub(super) fn takes_largest(&self) -> bool {
        let largest = Ident::new("Largest", Span::call_site());
        self.value("batch").is_some_and(|value| is_name(&value, &largest))
    }

    fn value(&self, name: &str) -> Option<syn::Expr> {
        let given = self.fields.iter().find(|given| given.name == name)?;
        syn::parse_str(&given.value).ok()
    }

    /// Puts the fields into the constants of a network. A number for `batch` takes the place of a generic network's parameter, and no other.
    pub(super) fn apply(&self, source: &mut Source) {
        let is_generic = source.declaration.batch.is_some();
        self.settle_batch(source);
        let is_of_both = |name: &str| INFER_FIELDS.contains(&name);
        if source.trains.is_empty() && source.infer.is_none() && !self.fields.is_empty() {
            let trains = self.fields.iter().any(|given| !is_of_both(&given.name));
            let constant = empty(if trains { "TRAIN" } else { "INFER" }, &source.declaration.name);
            if trains {
                source.trains.push(constant);
            } else {
                source.infer = Some(constant);
            }
        }
        for given in &self.fields {
            let is_parameter = given.name == "batch" && is_generic;
            let infer = source.infer.as_mut().filter(|_| is_of_both(&given.name));
            for settings in source.trains.iter_mut().chain(infer).filter(|_| !is_parameter) {
                put(settings, given);
            }
        }
    }

    /// Makes a generic network one of this batch, so that settings which divide the batch can be checked.
    fn settle_batch(&self, source: &mut Source) {
        let Some(parameter) = source.declaration.batch.clone() else { return };
        let Some(given) = self.fields.iter().find(|given| given.name == "batch") else { return };
        let is_parameter = |field: &Field| field.name == "batch" && is_name(&field.value, &parameter);
        let generic = source.trains.iter_mut().chain(&mut source.infer);
        let generic = generic.filter(|settings| settings.fields.iter().any(is_parameter));
        let mut generic: Vec<&mut Settings> = generic.filter(|_| self.samples().is_some()).collect();
        if !generic.is_empty() {
            let given = Override { is_default: false, ..given.clone() };
            generic.iter_mut().for_each(|settings| put(settings, &given));
            source.declaration.batch = None;
        }
    }
}

/// Returns a constant without fields, at the place of the network's name.
fn empty(constant: &str, name: &Ident) -> Settings {
    Settings {
        name: Ident::new(constant, name.span()),
        place: name.into(),
        is_broken: false,
        attributes: Vec::new(),
        fields: Vec::new(),
    }
}

/// Replaces a field, or adds it. Its tokens get the place of the field that they replace, or of the constant.
fn put(settings: &mut Settings, Override { name, value, is_default }: &Override) {
    let written = settings.fields.iter().position(|field| field.name == name);
    if *is_default && written.is_some() {
        return;
    }
    let place = written.map_or(settings.place.start, |at| settings.fields[at].name.span());
    let tokens: Option<TokenStream> = value.parse().ok();
    let Some(value) = tokens.and_then(|tokens| syn::parse2(moved(tokens, place)).ok()) else { return };
    let field = Field { name: Ident::new(name, place), value };
    match written {
        Some(at) => settings.fields[at] = field,
        None => settings.fields.push(field),
    }
}

/// Returns tokens at another place.
fn moved(tokens: TokenStream, place: Span) -> TokenStream {
    let move_one = |mut tree: TokenTree| {
        if let TokenTree::Group(group) = &tree {
            tree = Group::new(group.delimiter(), moved(group.stream(), place)).into();
        }
        tree.set_span(place);
        tree
    };
    tokens.into_iter().map(move_one).collect()
}

//! Reads `loss: CrossEntropy + 0.3 * CrossEntropy(from = aux)`: the terms, the values that they measure, and their targets.

mod checks;
mod learned;
mod lengths;
mod options;
mod shapes;

use crate::errors::Errors;
use crate::resolve::Resolved;
use crate::settings::values::{last_name, number, plain};
use crate::syntax::Place;
use checks::{
    all_measured, check_chunks, check_classes, check_handed_in, check_logits, check_numbers, check_target, tapped,
    target_of,
};
use gpumem_core::Loss;
use gpumem_core::graph::Elements;
use gpumem_core::layers::mistake::listed;
use gpumem_core::lower::Term;
use gpumem_core::program::loss::{Compares, LossOptions, Over, Weighting};
use gpumem_core::shape::Shape;
use gpumem_core::suggest::{self, nearest};
use lengths::counted;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;
use syn::{BinOp, Expr};

/// Returns the names of the losses.
pub(crate) fn names() -> Vec<&'static str> {
    Loss::ALL.iter().map(|loss| loss.name()).collect()
}

/// A target: a tensor of this shape for each sample, of class indices or of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) shape: Shape,
    pub(crate) elements: Elements,
}

/// The loss of a network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) terms: Vec<Term>,
    /// The targets, in the order in which a step takes them.
    pub(crate) targets: Vec<Target>,
    /// The terms as Rust code.
    pub(crate) tokens: TokenStream,
}

/// A term of the loss, as the user wrote it.
struct Written {
    /// The span of its name, for editors.
    name: Span,
    loss: Loss,
    weight: f64,
    /// Names of the values that it measures. Empty if it measures outputs; a loss of several values names all or none.
    from: Vec<Ident>,
    /// True if `from` has a mistake, so that the measured values are not known.
    is_lost: bool,
    target: Option<Ident>,
    input_lengths: Option<Ident>,
    /// The name of the factors of its terms: a number for each sample, or for each term. `None` without factors.
    weights: Option<Ident>,
    /// The input of the network that says how many time steps of each sample count. `None` if all count.
    lengths: Option<Ident>,
    options: options::Reading,
    place: Place,
}

/// Reads the loss.
pub(crate) fn read(value: &Expr, resolved: &Resolved, errors: &mut Errors) -> Reading {
    let (mut terms, before) = (Vec::new(), errors.list().len());
    collect(value, &mut terms, errors);
    let reading = assemble(&terms, resolved, errors);
    // After a mistake the terms may be incomplete, and their numbers are not checked.
    if errors.list().len() == before {
        check_numbers(&terms, resolved, errors);
    }
    reading
}

/// Returns the loss of a network that names none: the cross entropy of its first output.
pub(crate) fn default(resolved: &Resolved, errors: &mut Errors) -> Reading {
    let Some(promised) = resolved.promised.as_ref().and_then(|promised| promised.first()) else {
        return Reading::default();
    };
    let name = Span::call_site();
    let term = Written {
        name,
        loss: Loss::CrossEntropy,
        weight: 1.0,
        from: Vec::new(),
        is_lost: false,
        target: None,
        input_lengths: None,
        weights: None,
        lengths: None,
        options: Default::default(),
        place: promised.place,
    };
    assemble(&[term], resolved, errors)
}

/// Collects the terms of a sum.
fn collect(value: &Expr, terms: &mut Vec<Written>, errors: &mut Errors) {
    if let Expr::Binary(sum) = plain(value) {
        match sum.op {
            BinOp::Add(_) => {
                collect(&sum.left, terms, errors);
                return collect(&sum.right, terms, errors);
            }
            BinOp::Mul(_) => {
                let (weight, term) = match (number(&sum.left), number(&sum.right)) {
                    (Some(weight), None) => (weight, &sum.right),
                    (None, Some(weight)) => (weight, &sum.left),
                    _ => {
                        let message =
                            "a term's weight changes the program, so it must be a literal: `0.3 * CrossEntropy`";
                        return errors.add(Place::of(value), message);
                    }
                };
                let first = terms.len();
                collect(term, terms, errors);
                let weighted = &mut terms[first..];
                weighted.iter_mut().for_each(|term| term.weight *= weight);
                // The product of several weights may be too large or too small even if each of them is not.
                if !is_weight(weight) || !weighted.iter().all(|term| is_weight(term.weight)) {
                    errors.add(Place::of(value), "a term's weight must be above 0 and finite");
                    weighted.iter_mut().for_each(|term| term.weight = 1.0);
                }
                return;
            }
            _ => {
                let message =
                    "a loss is a sum of terms, each with a weight: `CrossEntropy + 0.3 * CrossEntropy(from = aux)`";
                return errors.add(Place::of(value), message);
            }
        }
    }
    terms.extend(term(value, errors));
}

fn is_weight(number: f64) -> bool {
    number > 0.0 && number.is_finite()
}

/// Reads a term, as `CrossEntropy`, `Mse(target = masks)` or `SmoothL1 { beta: 0.5 }(from = aux)`. `None` after a mistake.
fn term(value: &Expr, errors: &mut Errors) -> Option<Written> {
    let place = Place::of(value);
    let (named, arguments) = match plain(value) {
        Expr::Call(call) => (plain(&call.func), call.args.iter().collect()),
        other => (other, Vec::new()),
    };
    let (name, fields) = match named {
        Expr::Struct(written) => (written.path.segments.last().map(|segment| &segment.ident), Some(written)),
        other => (last_name(other), None),
    };
    let names = names();
    let Some(name) = name else {
        let message = format!(
            "the loss must be literal, since the macro reads it; write {}",
            gpumem_core::layers::mistake::either(&names)
        );
        errors.add(place, message);
        return None;
    };
    let text = name.to_string();
    let Some(&loss) = Loss::ALL.iter().find(|loss| loss.name() == text) else {
        let near = nearest(&text, &names).filter(|_| !is_another(&text));
        let hint = match (of_elsewhere(&text), near) {
            (Some(loss), _) => format!("did you mean `{}`?", example(loss)),
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) => format!("there are {}", listed(&names)),
        };
        errors.add(place, format!("no loss is called `{text}`; {hint}"));
        return None;
    };
    let options = fields.map(|fields| options::read(loss, fields, errors)).unwrap_or_default();
    let mut written = Written {
        name: name.span(),
        loss,
        weight: 1.0,
        from: Vec::new(),
        is_lost: false,
        target: None,
        input_lengths: None,
        weights: None,
        lengths: None,
        options,
        place,
    };
    if loss.row().compares == Compares::Labels && !written.options.has_length {
        let message = format!(
            "`{text}` has to know how many labels a target has at most; write `{text} {{ target_length: 32 }}`"
        );
        errors.add(place, message);
        return None;
    }
    arguments.into_iter().for_each(|argument| source(argument, &mut written, errors));
    Some(written)
}

/// Returns the loss that PyTorch or another library calls by this name, as `CTCLoss` or `mse_loss`. `None` if there is none.
pub(crate) fn of_elsewhere(name: &str) -> Option<Loss> {
    let name = suggest::plain(name);
    let bare = name.strip_suffix("loss").unwrap_or(&name);
    match bare {
        "clip" => Some(Loss::Contrastive),
        "infonce" | "simclr" => Some(Loss::NtXent),
        _ => Loss::ALL.iter().copied().find(|loss| loss.name().to_lowercase() == bare),
    }
}

/// True if PyTorch has a loss of this name. Where there is none here, its spelling is not corrected, however near another name is.
fn is_another(name: &str) -> bool {
    let name = suggest::plain(name);
    let bare = name.strip_suffix("loss").unwrap_or(&name);
    matches!(bare, "hingeembedding" | "multimargin" | "gaussiannll" | "poissonnll" | "multilabelmargin")
}

/// Returns an example of a loss with the options that it requires.
pub(crate) fn example(loss: Loss) -> String {
    match loss.row().compares {
        Compares::Labels => format!("{} {{ target_length: 32 }}", loss.name()),
        _ => loss.name().to_string(),
    }
}

/// Reads an argument: `from = aux`, `from = (x, y)`, `target = name`, `input_lengths = name` or `lengths = n`.
fn source(argument: &Expr, written: &mut Written, errors: &mut Errors) {
    let loss = written.loss;
    let text = loss.name();
    if let Some(option) = options::in_parentheses(loss, argument) {
        let message = format!("options stand in braces; write `{text} {{ {option} }}`");
        return errors.add(Place::of(argument), message);
    }
    let (Some(option), Some(values)) = option(argument) else {
        let from = if written.over().values() == 1 { "from = name" } else { source_of(written) };
        let or = if sources(written).contains(&"target") { " or `target = name`" } else { "" };
        let message = format!("expected `{from}`{or}, as `{text}({})`", source_of(written));
        written.is_lost = written.over().values() > 1;
        return errors.add(Place::of(argument), message);
    };
    let known = sources(written);
    let name = option.to_string();
    if name == "target" && written.compares() == Compares::Nothing {
        let with = if loss == Loss::Mean { "nothing" } else { "no target" };
        return errors.add(Place::of(argument), format!("`{text}` compares with {with}; remove `target`"));
    }
    if let Some(message) = lengths::of_classes(written).filter(|_| name == "lengths") {
        return errors.add(&option, message);
    }
    if !known.contains(&name.as_str()) {
        let hint = match nearest(&name, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let sources: Vec<String> = known.iter().map(|known| format!("`{known}`")).collect();
                let (last, before) = sources.split_last().expect("`from` is always there");
                let sources = match before {
                    [] => format!("{last} stands"),
                    before => format!("{} and {last} stand", before.join(", ")),
                };
                format!("{sources} here, and in braces after the name {}", listed(&loss.row().options()))
            }
        };
        return errors.add(&option, format!("`{text}` has no option `{name}`; {hint}"));
    }
    let is_twice = match name.as_str() {
        "from" => !written.from.is_empty(),
        "target" => written.target.is_some(),
        "weights" | "mask" => written.weights.is_some(),
        "lengths" => written.lengths.is_some(),
        _ => written.input_lengths.is_some(),
    };
    if is_twice {
        let twice = match (name.as_str(), written.options.options.weighting) {
            ("weights", Weighting::Mask) | ("mask", Weighting::Samples) => {
                "terms have `weights` or a `mask`".to_string()
            }
            _ => format!("`{option}` is given twice"),
        };
        return errors.add(&option, format!("{twice}; remove one"));
    }
    if let Some(message) = lengths::beside_weights(written, &name) {
        return errors.add(&option, message);
    }
    let place = Place::of(argument);
    match (name.as_str(), &*values) {
        ("from", values) if values.len() == written.over().values() => written.from = values.to_vec(),
        ("from", _) if written.over().values() > 1 => {
            let from = source_of(written);
            errors.add(place, format!("`{text}` compares {} values; write `{from}`", count_of(written.over())));
            written.is_lost = true;
        }
        ("weights" | "mask", [value]) => {
            written.weights = Some(value.clone());
            written.options.options.weighting = if name == "mask" { Weighting::Mask } else { Weighting::Samples };
        }
        ("target", [value]) => written.target = Some(value.clone()),
        ("lengths", [value]) => written.lengths = Some(value.clone()),
        (_, [value]) => written.input_lengths = Some(value.clone()),
        _ => {
            let message = format!("`{name}` is one name here; write `{text}({name} = {})`", values[0]);
            errors.add(place, message);
        }
    }
}

/// Returns the options that a loss takes in parentheses.
fn sources(term: &Written) -> Vec<&'static str> {
    let mut known = vec!["from"];
    if term.compares() != Compares::Nothing || term.loss == Loss::Mean {
        known.push("target");
    }
    if term.compares() == Compares::Labels {
        known.push("input_lengths");
    }
    if !term.over().compares_samples() {
        known.push("weights");
        // `Ctc` has one term for each sequence, so a mask would be `weights`.
        known.extend((term.over() != Over::Sequences).then_some("mask"));
    }
    if term.over() == Over::Elements {
        known.push("lengths");
    }
    known
}

/// Returns an example of `from` with as many names as the loss measures values.
fn source_of(term: &Written) -> &'static str {
    match term.over().values() {
        1 => "from = aux",
        2 => "from = (x, y)",
        _ => "from = (a, p, n)",
    }
}

fn count_of(over: Over) -> &'static str {
    if over.values() == 2 { "two" } else { "three" }
}

impl Written {
    fn over(&self) -> Over {
        self.options.options.over(self.loss.into())
    }

    fn compares(&self) -> Compares {
        self.options.options.compares(self.loss.into())
    }
}

/// Returns the name and the values of an argument such as `from = aux` or `from = (x, y)`. Each is `None` if it cannot be read.
fn option(argument: &Expr) -> (Option<Ident>, Option<Vec<Ident>>) {
    let Expr::Assign(assign) = plain(argument) else { return (None, None) };
    let values: Option<Vec<Ident>> = match plain(&assign.right) {
        Expr::Tuple(tuple) => tuple.elems.iter().map(|value| last_name(value).cloned()).collect(),
        value => last_name(value).map(|name| vec![name.clone()]),
    };
    (last_name(&assign.left).cloned(), values.filter(|values| !values.is_empty()))
}

/// Resolves the names in terms to values of the network, and numbers the targets.
fn assemble(written: &[Written], resolved: &Resolved, errors: &mut Errors) -> Reading {
    let mut reading = Reading::default();
    let mut names: Vec<Option<String>> = Vec::new();
    let mut chunks = Vec::new();
    for term in written.iter().filter(|term| !term.is_lost) {
        check_handed_in(term, resolved, errors);
        let Some(measured) = all_measured(term, resolved, errors) else { continue };
        let (node, value) = measured[0];
        check_classes(term, resolved, value, errors);
        check_logits(term, resolved, node, errors);
        options::check_classes(term.loss, &term.options, value.shape, errors);
        if !shapes::check(term, &measured, errors) {
            continue;
        }
        let mut numbered = |name: Option<String>, target: Target| match names.iter().position(|known| *known == name) {
            Some(index) => {
                check_target(term, reading.targets[index], target, errors);
                index
            }
            None => {
                names.push(name);
                reading.targets.push(target);
                names.len() - 1
            }
        };
        let name = |name: &Ident| name.to_string();
        let target = target_of(term, value).map_or(0, |target| numbered(term.target.as_ref().map(name), target));
        let each = Target { shape: Shape::new(&[]), elements: Elements::Indices };
        let lengths = term.input_lengths.as_ref().map(|lengths| numbered(Some(name(lengths)), each));
        let weights = term.weights.as_ref().zip(term.options.options.weights_of(term.loss.into(), value.shape));
        let numbers = |shape| Target { shape, elements: Elements::Numbers };
        let weights = weights.map(|(weights, shape)| numbered(Some(name(weights)), numbers(shape)));
        let counted = counted(term, &measured, resolved, errors);
        let [from, and, third] =
            [0, 1, 2].map(|side| measured.get(side).filter(|_| !term.from.is_empty()).map(|(node, _)| *node));
        let [scale, bias] = [0, 1].map(|number| learned::node(term, number, resolved, errors));
        let options = LossOptions { counted: counted.map_or(0, |(_, steps)| steps), ..term.options.options.clone() };
        let counted = counted.map(|(node, _)| node);
        let (measure, weight) = (term.loss.into(), term.weight);
        reading.tokens.extend(tokens(term, &options));
        reading.terms.push(Term {
            measure,
            weight,
            from,
            and,
            third,
            scale,
            bias,
            target,
            lengths,
            weights,
            counted,
            options,
        });
        chunks.push(term.options.chunks);
    }
    check_chunks(&reading.terms, &chunks, resolved, errors);
    reading
}

fn tokens(term: &Written, options: &LossOptions) -> TokenStream {
    let loss = Ident::new(term.loss.name(), term.name);
    let name = |name: Option<&Ident>| match name {
        Some(name) => {
            let name = name.to_string();
            quote!(::core::option::Option::Some(#name))
        }
        None => quote!(::core::option::Option::None),
    };
    let options = options::tokens(options);
    let [from, and, third] = [0, 1, 2].map(|side| name(term.from.get(side)));
    let [scale, bias] = term.options.learned.each_ref().map(|learned| name(learned.as_ref()));
    let [target, input_lengths, weights, lengths] =
        [&term.target, &term.input_lengths, &term.weights, &term.lengths].map(|written| name(written.as_ref()));
    let weight = Literal::f64_unsuffixed(term.weight);
    quote! {
        __gpumem::__private::LossTerm {
            loss: __gpumem::__private::Loss::#loss,
            weight: #weight,
            from: #from,
            and: #and,
            third: #third,
            scale: #scale,
            bias: #bias,
            target: #target,
            input_lengths: #input_lengths,
            weights: #weights,
            lengths: #lengths,
            options: #options,
        },
    }
}

//! Reads the options of a loss: `CrossEntropy { label_smoothing: 0.1, ignore_index: -100 }`.

use super::learned;
use crate::errors::Errors;
use crate::settings::values::{last_name, number, plain};
use crate::syntax::Place;
use gpumem_core::layers::mistake::{either, listed};
use gpumem_core::lower::MOST_CHUNKS;
use gpumem_core::program::loss::{BIAS, Chunks, LossNumber, LossOptions, Mining, Over, Reduction, SCALE};
use gpumem_core::shape::Shape;
use gpumem_core::suggest::nearest;
use gpumem_core::{Loss, train};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;
use std::borrow::Cow;
use syn::{Expr, ExprLit, ExprStruct, Lit, Member, UnOp};

/// The options of a loss, with the places that later checks need.
pub(super) struct Reading {
    pub(super) options: LossOptions,
    /// The place of the weights for classes, and a flag that is true if they are a list. `None` if they are not written.
    weights: Option<(Place, bool)>,
    /// The place of `blank`, or `None` if it is not written.
    pub(super) blank: Option<Place>,
    /// The place of `chunks`, or `None` if it is not written.
    pub(super) chunks: Option<Place>,
    /// True if the length of targets is given.
    pub(super) has_length: bool,
    /// The names of a learned scale and of a learned bias. Each is `None` if it is not written.
    pub(super) learned: [Option<Ident>; 2],
}

impl Default for Reading {
    fn default() -> Reading {
        Reading {
            options: LossOptions::DEFAULT,
            weights: None,
            blank: None,
            chunks: None,
            has_length: false,
            learned: [None, None],
        }
    }
}

/// Reads the options in braces.
pub(super) fn read(loss: Loss, written: &ExprStruct, errors: &mut Errors) -> Reading {
    let mut reading = Reading::default();
    if let Some(rest) = &written.dot2_token {
        errors.add(Place::of(rest), "options left out take PyTorch's defaults; remove this");
    }
    let (row, name) = (loss.row(), loss.name());
    let known = row.options();
    let mut given: Vec<&Ident> = Vec::new();
    for field in &written.fields {
        let Member::Named(option) = &field.member else {
            errors.add(Place::of(&field.member), "expected an option's name");
            continue;
        };
        let (text, value) = (option.to_string(), &field.expr);
        if !known.contains(&text.as_str()) {
            errors.add(option, format!("`{name}` has no option `{text}`; {}", hint(&text, &known)));
            continue;
        }
        if given.contains(&option) {
            errors.add(option, format!("`{text}` is given twice; remove one"));
            continue;
        }
        given.push(option);
        if text == BIAS
            && let Some(name) = learned::name(value)
        {
            reading.learned[1] = Some(name);
            continue;
        }
        if text == SCALE {
            match learned::scale(value) {
                Ok(name) => reading.learned[0] = Some(name),
                Err(message) => errors.add(Place::of(value), message),
            }
            continue;
        }
        let options = &mut reading.options;
        let result = match text.as_str() {
            "reduction" => reduction(value, row.divergence).map(|it| options.reduction = it),
            "ignore_index" => index(value).map(|it| options.ignored = Some(it)),
            "targets" => targets(value).map(|it| options.probabilities = it),
            "log_target" => flag(&text, value).map(|it| options.log_target = it),
            "swap" => flag(&text, value).map(|it| options.swap = it),
            "mining" => mining(value).map(|it| options.mining = it),
            "zero_infinity" => flag(&text, value).map(|it| options.zero_infinity = it),
            "target_length" => {
                // A wrong length must not be reported as missing too.
                (options.target_length, reading.has_length) = (1, true);
                length(value).map(|it| options.target_length = it)
            }
            "chunks" => {
                reading.chunks = Some(Place::of(value));
                chunks(value).map(|it| options.chunks = it)
            }
            "blank" => {
                reading.blank = Some(Place::of(value));
                class(value).map(|it| options.blank = it)
            }
            _ => match [row.number, row.second].map(|number| number.filter(|number| number.name == text)) {
                [Some(known), _] => number_of(&known, value).map(|it| options.number = Some(it)),
                [_, Some(known)] => number_of(&known, value).map(|it| options.second = Some(it)),
                [None, None] => weights(&text, value).map(|(numbers, is_list)| {
                    options.weights = Cow::Owned(numbers);
                    reading.weights = Some((Place::of(value), is_list));
                }),
            },
        };
        if let Err(message) = result {
            errors.add(Place::of(value), message);
        }
    }
    if reading.learned[0].is_some()
        && let Some(option) = given.iter().find(|option| **option == "temperature")
    {
        errors.add(
            *option,
            "products are divided by `temperature` or multiplied with the exponential of `scale`; remove one",
        );
    }
    if reading.options.mining != Mining::None
        && let Some(option) = given.iter().find(|option| ["p", "swap"].iter().any(|name| **option == name))
    {
        errors.add(*option, format!("with `mining` distances are plain ones between samples; remove `{option}`"));
    }
    if reading.options.probabilities && reading.options.ignored.take().is_some() {
        let option = given.iter().find(|option| **option == "ignore_index");
        let place = option.map_or(Place::of(written), |option| Place::of(*option));
        errors
            .add(place, "`ignore_index` is a class index, and with `targets: Probabilities` there is none; remove it");
    }
    reading
}

fn hint(text: &str, known: &[&str]) -> String {
    match (text, nearest(text, known)) {
        ("from" | "target", _) => "it stands in parentheses after the options, as `(from = aux)`".to_string(),
        ("mask", _) => "it stands in parentheses after the options, as `(mask = name)`".to_string(),
        ("input_lengths", _) if known.contains(&"target_length") => {
            "it stands in parentheses after the options, as `(input_lengths = name)`".to_string()
        }
        (_, Some(near)) => format!("did you mean `{near}`?"),
        (_, None) if known.len() == 1 => format!("it has {}", listed(known)),
        (_, None) => format!("its options are {}", listed(known)),
    }
}

/// Returns an option that is written in parentheses, `CrossEntropy(label_smoothing = 0.1)`, as it should be written in braces.
///
/// `None` if the loss has no such option.
pub(super) fn in_parentheses(loss: Loss, argument: &Expr) -> Option<String> {
    let Expr::Assign(assign) = plain(argument) else { return None };
    let name = last_name(&assign.left)?.to_string();
    let written = &assign.right;
    let value = match plain(written) {
        Expr::Lit(ExprLit { lit: Lit::Str(value), .. }) if name == "reduction" => {
            let known = reductions(loss.row().divergence);
            let meant = known.iter().find(|(known, _)| known.eq_ignore_ascii_case(&value.value()));
            meant.unwrap_or(&known[0]).0.to_string()
        }
        Expr::Path(path) if path.path.is_ident("True") => "true".to_string(),
        Expr::Path(path) if path.path.is_ident("False") => "false".to_string(),
        _ => quote!(#written).to_string().replace("- ", "-"),
    };
    loss.row().options().contains(&name.as_str()).then(|| format!("{name}: {value}"))
}

/// Returns the values of `reduction` with their names. Only a divergence has `BatchMean`.
fn reductions(divergence: bool) -> &'static [(&'static str, Reduction)] {
    const ALL: [(&str, Reduction); 3] =
        [("Mean", Reduction::Mean), ("Sum", Reduction::Sum), ("BatchMean", Reduction::BatchMean)];
    &ALL[..if divergence { 3 } else { 2 }]
}

fn reduction(value: &Expr, divergence: bool) -> Result<Reduction, String> {
    let known = reductions(divergence);
    let name = last_name(value).map(ToString::to_string);
    let found = known.iter().find(|(known, _)| Some(*known) == name.as_deref());
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    found.map(|(_, reduction)| *reduction).ok_or_else(|| format!("`reduction` is {}", either(&names)))
}

/// Reads a class index that no class needs to have: 32 bits, with or without a sign.
fn index(value: &Expr) -> Result<u32, String> {
    let whole = match plain(value) {
        Expr::Unary(negative) if matches!(negative.op, UnOp::Neg(_)) => digits(&negative.expr).map(|it| -it),
        other => digits(other),
    };
    let whole = whole.ok_or("`ignore_index` changes the program, so it must be a literal, as `-100`")?;
    let bits = i32::try_from(whole).map(i32::cast_unsigned).or_else(|_| u32::try_from(whole));
    bits.map_err(|_| format!("targets have 32 bits, so `ignore_index` is from {} to {}", i32::MIN, u32::MAX))
}

fn digits(value: &Expr) -> Option<i128> {
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Int(value), .. }) => value.base10_parse().ok(),
        _ => None,
    }
}

fn targets(value: &Expr) -> Result<bool, String> {
    match last_name(value) {
        Some(name) if name == "Probabilities" => Ok(true),
        Some(name) if name == "Classes" => Ok(false),
        _ => Err("`targets` is `Classes` or `Probabilities`".to_string()),
    }
}

fn mining(value: &Expr) -> Result<Mining, String> {
    match last_name(value) {
        Some(name) if name == "Hardest" => Ok(Mining::Hardest),
        _ => Err("`mining` is `Hardest`; leave it out for vectors of three values".to_string()),
    }
}

fn flag(name: &str, value: &Expr) -> Result<bool, String> {
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => Ok(value.value),
        _ => Err(format!("`{name}` changes the program, so it must be `true` or `false`")),
    }
}

/// Reads the most labels of a target.
fn length(value: &Expr) -> Result<u64, String> {
    let whole =
        digits(value).ok_or("`target_length` changes the program, so it must be a literal, as `target_length: 32`")?;
    match u32::try_from(whole) {
        Ok(0) => Err("`target_length` is at least 1".to_string()),
        Ok(length) => Ok(length.into()),
        Err(_) => Err(format!("`target_length` is at most {}", u32::MAX)),
    }
}

/// Reads the number of chunks of a sequence, or `Auto`.
fn chunks(value: &Expr) -> Result<Chunks, String> {
    if last_name(value).is_some_and(|name| name == "Auto") {
        return Ok(Chunks::Auto);
    }
    let whole =
        digits(value).ok_or("`chunks` changes the program, so it must be `Auto` or a literal, as `chunks: 8`")?;
    match u64::try_from(whole) {
        Ok(0) => Err("`chunks` is at least 1".to_string()),
        Ok(chunks) => Ok(Chunks::Count(chunks)),
        Err(_) => Err(format!("`chunks` is at most {MOST_CHUNKS}: each has operations of its own")),
    }
}

/// Reads the index of a class.
fn class(value: &Expr) -> Result<u32, String> {
    digits(value)
        .and_then(|whole| u32::try_from(whole).ok())
        .ok_or_else(|| "`blank` changes the program, so it must be the number of a class, as `blank: 0`".to_string())
}

/// Reads the number of a loss, and checks its range.
fn number_of(known: &LossNumber, value: &Expr) -> Result<f64, String> {
    let name = known.name;
    let found = number(value)
        .ok_or_else(|| format!("`{name}` changes the program, so it must be a literal, as `{name}: 0.5`"))?;
    let LossNumber { least, most, above, .. } = *known;
    let is_above = if above { found > least } else { found >= least };
    let range = match (above, most < f64::MAX) {
        _ if least == f64::MIN => "finite".to_string(),
        (_, true) => format!("from {least} to {most}"),
        (false, false) => format!("at least {least} and finite"),
        (true, false) => format!("above {least} and finite"),
    };
    if is_above && found <= most { Ok(found) } else { Err(format!("`{name}` is {range}")) }
}

/// Reads the numbers for classes, and if they are a list. `pos_weight` may also be one number for all classes.
fn weights(name: &str, value: &Expr) -> Result<(Vec<f64>, bool), String> {
    let written = match plain(value) {
        Expr::Array(list) => Some((list.elems.iter().map(number).collect(), true)),
        Expr::Repeat(repeated) => {
            let count = digits(&repeated.len).and_then(|count| usize::try_from(count).ok());
            number(&repeated.expr).zip(count).map(|(number, count)| (Some(vec![number; count.min(1 << 20)]), true))
        }
        other if name == "pos_weight" => number(other).map(|number| (Some(vec![number]), false)),
        _ => None,
    };
    let Some((Some(numbers), is_list)) = written else {
        return Err(format!("`{name}` changes the program, so it must be a list of literals, as `{name}: [1.0, 2.5]`"));
    };
    let numbers: Vec<f64> = numbers;
    if numbers.is_empty() {
        return Err(format!("`{name}` has no numbers; leave it out, or give each class one"));
    }
    if !numbers.iter().all(|number| *number >= 0.0 && number.is_finite()) {
        return Err(format!("every number of `{name}` is at least 0 and finite"));
    }
    Ok((numbers, is_list))
}

/// Checks that there is a number for each class.
pub(super) fn check_classes(loss: Loss, reading: &Reading, shape: Shape, errors: &mut Errors) {
    let (Some((place, is_list)), Some(name)) = (reading.weights, loss.row().weights) else { return };
    let dims = shape.dims();
    let classes = match *dims {
        [classes, _, _] => classes,
        [.., classes] => classes,
        [] => 1,
    };
    let count = reading.options.weights.len() as u64;
    let is_for_all = loss.row().over == Over::Elements && (count == 1 || !is_list);
    if count != classes && !is_for_all {
        let count = if count == 1 { "1 number".to_string() } else { format!("{count} numbers") };
        let classes = if classes == 1 { "1 class".to_string() } else { format!("{classes} classes") };
        errors.add(place, format!("`{name}` has {count}, but a value of shape {shape} has {classes}"));
    }
}

/// Returns the options as Rust code.
pub(super) fn tokens(options: &train::LossOptions) -> TokenStream {
    if *options == LossOptions::DEFAULT {
        return quote!(__gpumem::__private::LossOptions::DEFAULT);
    }
    let LossOptions { reduction, number, second, weights, ignored, probabilities, log_target, .. } = options;
    let LossOptions { blank, target_length, zero_infinity, chunks, swap, mining, weighting, counted, .. } = options;
    let [mining, weighting] =
        [format!("{mining:?}"), format!("{weighting:?}")].map(|name| Ident::new(&name, Span::call_site()));
    let counted = Literal::u64_unsuffixed(*counted);
    let chunks = match *chunks {
        Chunks::Count(count) => {
            let count = Literal::u64_unsuffixed(count);
            quote!(__gpumem::__private::train::Chunks::Count(#count))
        }
        Chunks::Auto => quote!(__gpumem::__private::train::Chunks::Auto),
        Chunks::Twice(count) => {
            let count = Literal::u64_unsuffixed(count);
            quote!(__gpumem::__private::train::Chunks::Twice(#count))
        }
    };
    let (blank, target_length) = (Literal::u32_unsuffixed(*blank), Literal::u64_unsuffixed(*target_length));
    let reduction = Ident::new(&format!("{reduction:?}"), Span::call_site());
    let number = optional(number.map(Literal::f64_unsuffixed));
    let second = optional(second.map(Literal::f64_unsuffixed));
    let weights = weights.iter().map(|weight| Literal::f64_unsuffixed(*weight));
    let ignored = optional(ignored.map(Literal::u32_unsuffixed));
    quote! {
        __gpumem::__private::LossOptions {
            reduction: __gpumem::__private::Reduction::#reduction,
            number: #number,
            second: #second,
            weights: __gpumem::__private::train::weights(&[#(#weights),*]),
            ignored: #ignored,
            probabilities: #probabilities,
            log_target: #log_target,
            blank: #blank,
            target_length: #target_length,
            zero_infinity: #zero_infinity,
            chunks: #chunks,
            swap: #swap,
            mining: __gpumem::__private::train::Mining::#mining,
            weighting: __gpumem::__private::train::Weighting::#weighting,
            counted: #counted,
        }
    }
}

fn optional(value: Option<Literal>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

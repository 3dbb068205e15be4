//! Reads `clip: GlobalNorm(1.0)` and `schedule: Cosine { total: 5000 }` of `TRAIN`, and other fields that act before an update.

use crate::errors::Errors;
use crate::settings::reading::Reading;
use crate::settings::values::{self, last_name, one_of, plain, text};
use crate::syntax::{Constant, Place};
use gpumem_core::Update;
use gpumem_core::layers::mistake::listed;
use gpumem_core::suggest::{self, nearest};
use gpumem_core::train::{Clip, Field, Measurement, Schedule, Skip};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;
use syn::{BinOp, Expr, ExprLit, ExprStruct, Lit, Member, UnOp};

/// The most constants that may refer to each other in a chain, so that a circle of constants ends.
const DEEPEST: usize = 16;

/// The end of a message about an unreadable number: which expressions the macro can read in a schedule or a clip.
const READABLE: &str = "the macro reads literals, constants that are declared inside the network, as `const STEPS: usize = 5000;`, and \
                        `+ - * / %` of these; what only the running program knows is set there, a rate with `set_lr`, and a `total` that is \
                        left out with `set_total`";

/// Reports the part of a number that the macro cannot read.
pub(crate) fn unreadable(value: &Expr, constants: &[Constant], errors: &mut Errors) {
    let part = unread(value, constants);
    let message = match last_name(part) {
        Some(name) if !constants.iter().any(|constant| constant.name == *name) => {
            format!("no constant of the network is called `{name}`; {READABLE}")
        }
        Some(name) => format!("`{name}` is no number that can be read; {READABLE}"),
        None => format!("`{}` is no number that can be read; {READABLE}", text(part).replace(" ()", "()")),
    };
    errors.add(Place::of(part), message);
}

/// Returns the smallest part of an expression that the macro cannot read as a number.
fn unread<'e>(value: &'e Expr, constants: &[Constant]) -> &'e Expr {
    let is_unread = |part: &&'e Expr| number(part, constants, 0).is_none();
    let value = plain(value);
    match value {
        Expr::Binary(binary) => {
            let parts: [&Expr; 2] = [&binary.left, &binary.right];
            parts.into_iter().find(is_unread).map_or(value, |part| unread(part, constants))
        }
        Expr::Unary(unary) if is_unread(&&*unary.expr) => unread(&unary.expr, constants),
        Expr::Cast(cast) if is_unread(&&*cast.expr) => unread(&cast.expr, constants),
        other => other,
    }
}

/// A number that the macro has read. It remembers if it is whole, because whole numbers divide as they do in Rust.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Whole(u64),
    Real(f64),
}

impl Number {
    pub(crate) fn real(self) -> f64 {
        match self {
            Number::Whole(number) => number as f64,
            Number::Real(number) => number,
        }
    }
}

/// Evaluates a literal, a constant of the network, or an expression that combines such values with `+`, `-`, `*`, `/` and `%`.
///
/// `depth` counts the constants that were followed to get here. `None` if the expression is not one of these.
pub(crate) fn number(value: &Expr, constants: &[Constant], depth: usize) -> Option<Number> {
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Int(whole), .. }) if whole.suffix() != "f64" => {
            whole.base10_parse().ok().map(Number::Whole)
        }
        Expr::Binary(binary) => {
            let left = number(&binary.left, constants, depth)?;
            combined(binary.op, left, number(&binary.right, constants, depth)?)
        }
        Expr::Unary(negative) if matches!(negative.op, UnOp::Neg(_)) => {
            Some(Number::Real(-number(&negative.expr, constants, depth)?.real()))
        }
        Expr::Cast(cast) => cast_to(&cast.ty, number(&cast.expr, constants, depth)?),
        Expr::Block(block) => match block.block.stmts.as_slice() {
            [syn::Stmt::Expr(value, None)] => number(value, constants, depth),
            _ => None,
        },
        Expr::Path(path) => {
            let name = path.path.get_ident()?;
            let constant = constants.iter().find(|constant| constant.name == *name).filter(|_| depth < DEEPEST)?;
            number(&syn::parse2(constant.tokens.clone()).ok()?, constants, depth + 1)
        }
        other => values::number(other).map(Number::Real),
    }
}

fn combined(operator: BinOp, left: Number, right: Number) -> Option<Number> {
    if let (Number::Whole(left), Number::Whole(right)) = (left, right) {
        let number = match operator {
            BinOp::Add(_) => left.checked_add(right),
            BinOp::Sub(_) => left.checked_sub(right),
            BinOp::Mul(_) => left.checked_mul(right),
            BinOp::Div(_) => left.checked_div(right),
            BinOp::Rem(_) => left.checked_rem(right),
            _ => None,
        };
        return number.map(Number::Whole);
    }
    let (left, right) = (left.real(), right.real());
    Some(Number::Real(match operator {
        BinOp::Add(_) => left + right,
        BinOp::Sub(_) => left - right,
        BinOp::Mul(_) => left * right,
        BinOp::Div(_) => left / right,
        BinOp::Rem(_) => left % right,
        _ => return None,
    }))
}

/// Applies `as f64`, `as usize`, `as u64` or `as u32`. `None` for other types.
fn cast_to(kind: &syn::Type, number: Number) -> Option<Number> {
    let syn::Type::Path(syn::TypePath { path, .. }) = kind else { return None };
    let kind = path.get_ident()?.to_string();
    match (kind.as_str(), number) {
        ("f64", number) => Some(Number::Real(number.real())),
        ("usize" | "u64", Number::Real(real)) => Some(Number::Whole(real as u64)),
        ("usize" | "u64", whole) => Some(whole),
        ("u32", Number::Whole(whole)) => u32::try_from(whole).ok().map(|whole| Number::Whole(whole.into())),
        _ => None,
    }
}

/// Returns what to write instead of a PyTorch schedule that does not exist here. `None` for other names.
///
/// These names are asked for before the spelling is corrected, because a near match would be misleading.
fn in_place_of(schedule: &str) -> Option<&'static str> {
    match suggest::plain(schedule).as_str() {
        "exponential" => Some("it is `Step { every: 1, factor: 0.95 }`"),
        "multistep" | "polynomial" | "reduceonplateau" | "cyclic" | "cosineannealingwarmrestarts" | "lambda" => {
            Some("a training loop says with `set_lr` what no schedule says")
        }
        _ => None,
    }
}

/// Returns a suggestion for a misspelt `name`, or the list of known names if none is similar.
pub(crate) fn hint(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", listed(known)),
    }
}

/// Reads `clip`.
pub(crate) fn clip(
    value: &Expr,
    constants: &[Constant],
    reading: &mut Reading<'_>,
    errors: &mut Errors,
) -> TokenStream {
    let none = quote!(::core::option::Option::None);
    let (name, arguments) = match plain(value) {
        Expr::Call(call) => (last_name(&call.func), call.args.iter().collect()),
        Expr::Struct(written) => (written.path.segments.last().map(|segment| &segment.ident), Vec::new()),
        other => (last_name(other), Vec::new()),
    };
    let Some(name) = name else {
        let message = "how gradients are clipped must be literal, since the macro reads it; write `GlobalNorm(1.0)` or `Value(0.5)`";
        errors.add(Place::of(value), message);
        return none;
    };
    let text = name.to_string();
    if !Clip::NAMES.contains(&text.as_str()) {
        errors.add(name, format!("no way to clip gradients is called `{text}`; {}", hint(&text, &Clip::NAMES)));
        return none;
    }
    let [argument] = arguments[..] else {
        errors.add(Place::of(value), format!("`{text}` has one number in parentheses, as `{text}(1.0)`"));
        return none;
    };
    let Some(most) = number(argument, constants, 0).map(Number::real) else {
        unreadable(argument, constants, errors);
        return none;
    };
    let Some(clip) = Clip::named(&text, most) else { return none };
    if let Some(rule) = clip.mistake() {
        errors.add(Place::of(argument), format!("the number of `{text}` {rule}"));
        return none;
    }
    reading.descent.clip = Some(clip);
    let (named, most) = (Ident::new(&text, name.span()), Literal::f64_unsuffixed(most));
    quote!(::core::option::Option::Some(__gpumem::__private::train::Clip::#named(#most)))
}

/// Sets `update: Separate` if updates must wait for all gradients, and returns that field if it was left out.
///
/// Updates wait if gradients are clipped by their norm, if their norm is measured, or if they add up over micro-batches. Reports an error if
/// `update: Fused` was written with one of these or with `skip: NonFinite`. `None` if nothing has to be added.
pub(crate) fn separate(reading: &mut Reading<'_>, written: Option<&Expr>, errors: &mut Errors) -> Option<TokenStream> {
    let descent = reading.descent;
    let waits = descent.needs_norm() || descent.accumulates();
    if !(waits || descent.skips) || reading.update == Update::Separate {
        return None;
    }
    if let Some(value) = written {
        let message = match () {
            () if descent.clips_by_norm() => {
                "`clip: GlobalNorm` needs all gradients before the first update, so that updates are `Separate`; remove \
                 `update: Fused`, or clip each number by itself, as `clip: Value(0.5)`"
            }
            () if descent.measures_norm => {
                "`measure: GradientNorm` holds all gradients until their norm is known, so that updates are `Separate`; remove \
                 `update: Fused`"
            }
            () if !descent.accumulates() => {
                "`skip: NonFinite` looks at all gradients before the first update; remove `update: Fused`"
            }
            () => {
                "`micro_batches` adds up the gradients of all of them before the first update, so that updates are `Separate`; \
                 remove `update: Fused`"
            }
        };
        errors.add(Place::of(value), message);
        return None;
    }
    // `skip` alone checks a gradient as soon as it is there, so gradients need not be kept until the end of the step.
    if !waits {
        return None;
    }
    reading.update = Update::Separate;
    Some(quote!(update: __gpumem::__private::Update::Separate,))
}

/// Reads `measure`.
pub(crate) fn measure(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let chosen = one_of(value, "value of `measure`", &Measurement::NAMES, errors);
    reading.descent.measures_norm = Measurement::ALL[chosen] == Measurement::GradientNorm;
    let name = Ident::new(Measurement::NAMES[chosen], Span::call_site());
    quote!(__gpumem::__private::train::Measurement::#name)
}

/// Reads `skip`.
pub(crate) fn skip(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let chosen = one_of(value, "value of `skip`", &Skip::NAMES, errors);
    reading.descent.skips = Skip::ALL[chosen] == Skip::NonFinite;
    let name = Ident::new(Skip::NAMES[chosen], Span::call_site());
    quote!(__gpumem::__private::train::Skip::#name)
}

/// Reads `schedule`.
pub(crate) fn schedule(
    value: &Expr,
    constants: &[Constant],
    reading: &mut Reading<'_>,
    errors: &mut Errors,
) -> TokenStream {
    let plain_schedule = quote!(__gpumem::__private::train::Schedule::PLAIN);
    let (name, written) = match plain(value) {
        Expr::Struct(written) => (written.path.segments.last().map(|segment| &segment.ident), Some(written)),
        Expr::Call(call) => (last_name(&call.func), None),
        other => (last_name(other), None),
    };
    let names: Vec<&str> = Schedule::ROWS.iter().map(|(name, _)| *name).collect();
    let Some(name) = name else {
        let message = "the schedule must be literal, since the macro reads it; write it out, as `Cosine { warmup: 100, total: 5000 }`";
        errors.add(Place::of(value), message);
        return plain_schedule;
    };
    let text = name.to_string();
    let Some(&(_, fields)) = Schedule::ROWS.iter().find(|(known, _)| *known == text) else {
        // PyTorch's names end in `LR`, as `CosineAnnealingLR`.
        let bare = text.trim_end_matches("LR").trim_end_matches("Annealing").to_string();
        let hint = in_place_of(&bare).map_or_else(|| hint(&bare, &names), str::to_string);
        errors.add(name, format!("no schedule is called `{text}`; {hint}"));
        return plain_schedule;
    };
    if matches!(plain(value), Expr::Call(_)) {
        errors.add(
            Place::of(value),
            format!("numbers of a schedule stand in braces; write `{}`", example(&text, fields)),
        );
        return plain_schedule;
    }
    let Some((numbers, places)) = numbers(&text, fields, (value, written), constants, errors) else {
        return plain_schedule;
    };
    let Some(schedule) = Schedule::named(&text, &numbers) else { return plain_schedule };
    let place = |field: &str| {
        let at = fields.iter().position(|known| known.name == field);
        at.and_then(|at| places[at]).unwrap_or(Place::of(value))
    };
    let is_written = |field: &str| fields.iter().zip(&places).any(|(known, at)| known.name == field && at.is_some());
    let mistake = match schedule.total().filter(|_| is_written("total")) {
        Some(total) => schedule.mistake_of_total(total),
        None => schedule.mistake(),
    };
    if let Some((field, rule)) = mistake {
        errors.add(place(field), format!("`{field}` {rule}"));
        return plain_schedule;
    }
    reading.descent.schedule = schedule;
    reading.least = (schedule.min() > 0.0).then(|| place("min"));
    let named = Ident::new(&text, name.span());
    let each = fields.iter().zip(numbers).map(|(field, number)| {
        let name = Ident::new(field.name, Span::call_site());
        let number = match field.is_whole {
            true => Literal::u64_unsuffixed(number as u64),
            false => Literal::f64_unsuffixed(number),
        };
        quote!(#name: #number,)
    });
    quote!(__gpumem::__private::train::Schedule::#named { #(#each)* })
}

/// Returns an example of a schedule with the fields that it requires, and those that it usually has.
fn example(name: &str, fields: &[Field]) -> String {
    let needed = fields.iter().filter(|field| field.is_usual());
    let needed: Vec<String> = needed.map(|field| format!("{}: 1000", field.name)).collect();
    if needed.is_empty() { name.to_string() } else { format!("{name} {{ {} }}", needed.join(", ")) }
}

/// Returns the numbers of a schedule, in the order of its row, and the place of each. `None` after a mistake, which has been reported.
fn numbers(
    name: &str,
    fields: &[Field],
    (value, written): (&Expr, Option<&ExprStruct>),
    constants: &[Constant],
    errors: &mut Errors,
) -> Option<(Vec<f64>, Vec<Option<Place>>)> {
    let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
    let (mut numbers, mut places) = (vec![None; fields.len()], vec![None; fields.len()]);
    let before = errors.list().len();
    if let Some(rest) = written.and_then(|written| written.dot2_token.as_ref()) {
        errors.add(Place::of(rest), "numbers left out take their defaults; remove this".to_string());
    }
    for field in written.iter().flat_map(|written| &written.fields) {
        let Member::Named(member) = &field.member else {
            errors.add(Place::of(&field.member), "expected the name of a number".to_string());
            continue;
        };
        let text = member.to_string();
        let Some(at) = known.iter().position(|known| *known == text) else {
            errors.add(Place::of(member), format!("`{name}` has no `{text}`; {}", field_hint(&text, &known)));
            continue;
        };
        if places[at].replace(Place::of(&field.expr)).is_some() {
            errors.add(Place::of(member), format!("`{text}` is given twice; remove one"));
            continue;
        }
        match number(&field.expr, constants, 0) {
            Some(Number::Real(_)) if fields[at].is_whole => {
                errors.add(
                    Place::of(&field.expr),
                    format!("`{text}` counts steps, so it is a whole number, as `{text}: 100`"),
                );
            }
            Some(number) => numbers[at] = Some(number.real()),
            None => unreadable(&field.expr, constants, errors),
        }
    }
    for (field, place) in fields.iter().zip(&places) {
        if field.default.is_none() && place.is_none() {
            let message =
                format!("`{name}` needs `{}`, a number of steps; write `{}`", field.name, example(name, fields));
            errors.add(Place::of(value), message);
        }
    }
    let all = numbers.iter().zip(fields).map(|(number, field)| number.or(field.default));
    let all: Option<Vec<f64>> = all.collect();
    all.filter(|_| errors.list().len() == before).map(|all| (all, places))
}

/// Names of PyTorch and other libraries for the numbers of a schedule, with the names used here.
const ELSEWHERE: [(&str, &str); 9] = [
    ("T_max", "total"),
    ("total_steps", "total"),
    ("total_iters", "total"),
    ("num_training_steps", "total"),
    ("num_warmup_steps", "warmup"),
    ("warmup_steps", "warmup"),
    ("eta_min", "min"),
    ("gamma", "factor"),
    ("step_size", "every"),
];

fn field_hint(name: &str, known: &[&str]) -> String {
    let here = ELSEWHERE.iter().find(|(other, here)| *other == name && known.contains(here));
    match here.map(|(_, here)| *here).or_else(|| nearest(name, known)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it has {}", listed(known)),
    }
}

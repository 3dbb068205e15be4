//! Reads the optimizer of `TRAIN`: its name, its hyperparameters, and groups of parameters with hyperparameters of their own.

use crate::errors::Errors;
use crate::resolve::Resolved;
use crate::settings::layer_decay::{Layered, layers};
use crate::settings::reading::Reading;
use crate::settings::values::{last_name, literal, plain, text};
use crate::syntax::{Constant, Place};
use gpumem_core::layers::mistake::{either, listed};
use gpumem_core::suggest::nearest;
use gpumem_core::train::optim::{Optimizer, Row, matches, with_state};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit};

/// PyTorch's optimizers that do not exist here, in lower case. Their spelling is not corrected, however near another name is.
const OTHERS: [&str; 3] = ["rprop", "asgd", "sparseadam"];

/// Returns what to write instead of a hyperparameter that all of PyTorch's optimizers have. `None` for other names.
fn in_place_of(hyperparameter: &str) -> Option<&'static str> {
    match hyperparameter {
        "maximize" => {
            Some("a step makes the loss smaller; what is to grow has `Affine(-1.0)` after it, with `loss: Mean`")
        }
        "foreach" | "fused" | "capturable" | "differentiable" => Some("how it runs is no choice; leave it out"),
        _ => None,
    }
}

/// The fields of a group for every optimizer.
const GROUP: [&str; 4] = ["paths", "lr", "weight_decay", "layer_decay"];

/// Reads `Sgd { lr: 0.01, momentum: 0.9 }`, or `Adam` with its defaults.
pub(crate) fn read(
    value: &Expr,
    resolved: &Resolved,
    constants: &[Constant],
    reading: &mut Reading<'_>,
    errors: &mut Errors,
) -> TokenStream {
    let (name, fields) = match plain(value) {
        Expr::Struct(written) => {
            if let Some(rest) = &written.dot2_token {
                errors.add(Place::of(rest), "hyperparameters left out take PyTorch's defaults; remove this");
            }
            (written.path.segments.last().map(|segment| &segment.ident), Some(&written.fields))
        }
        other => (last_name(other), None),
    };
    let Some(name) = name else {
        let message = match plain(value) {
            Expr::Call(call) => in_braces(call),
            _ => None,
        };
        let message = message.unwrap_or_else(|| {
            "the optimizer must be literal, since the macro reads it; write it out, as `Sgd { lr: 0.01 }`".to_string()
        });
        errors.add(Place::of(value), message);
        return quote!(__gpumem::__private::Train::DEFAULT.optimizer);
    };
    let text = name.to_string();
    let Some(row) = Optimizer::ROWS.iter().find(|row| row.name == text) else {
        let names: Vec<&str> = Optimizer::ROWS.iter().map(|row| row.name).collect();
        let near = nearest(&text, &names).filter(|_| !OTHERS.contains(&text.to_lowercase().as_str()));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", listed(&names)),
        };
        errors.add(name, format!("no optimizer is called `{text}`; {hint}"));
        return quote!(__gpumem::__private::Train::DEFAULT.optimizer);
    };
    let Hyperparameters { tokens, set, complete, written, groups } =
        hyperparameters(row, fields.into_iter().flatten(), resolved, constants, errors);
    (reading.hyperparameters, reading.groups) = (written, groups);
    let there =
        row.states.iter().filter(|state| state.unless_zero.is_none_or(|name| set.iter().any(|set| set == name)));
    reading.moments = there.fold(0, with_state);
    reading.optimizer = Some(Place::of(value));
    let kind = Ident::new(&text, Span::call_site());
    // With the span of the name, an editor can explain it.
    let named = Ident::new(&text, name.span());
    let rest = (!complete).then(|| quote!(..__gpumem::__private::train::optim::#kind::DEFAULT));
    quote!(__gpumem::__private::train::optim::Optimizer::#kind(__gpumem::__private::train::optim::#named { #tokens #rest }))
}

/// The contents of an optimizer's braces.
struct Hyperparameters {
    tokens: TokenStream,
    /// Names of the hyperparameters whose value is not written as 0.
    set: Vec<String>,
    /// True if every hyperparameter is given, so that no default is needed.
    complete: bool,
    /// Hyperparameters that are written, with their places.
    written: Vec<(String, Place)>,
    /// The place of each group.
    groups: Vec<Place>,
}

fn hyperparameters<'e>(
    row: &Row,
    fields: impl Iterator<Item = &'e syn::FieldValue>,
    resolved: &Resolved,
    constants: &[Constant],
    errors: &mut Errors,
) -> Hyperparameters {
    let (known, optimizer) = (row.fields, row.name);
    let (mut set, mut given, mut tokens) = (Vec::new(), Vec::new(), TokenStream::new());
    let (mut grouped, mut relative, mut written) = (None, Vec::new(), Vec::new());
    let kind = Ident::new(optimizer, Span::call_site());
    let mut lr = quote!(__gpumem::__private::train::optim::#kind::DEFAULT.lr);
    for field in fields {
        let syn::Member::Named(member) = &field.member else {
            errors.add(Place::of(&field.member), "expected a hyperparameter's name");
            continue;
        };
        let parameter = member.to_string();
        if parameter != "groups" && !known.contains(&parameter.as_str()) {
            let hint = match (in_place_of(&parameter), nearest(&parameter, &[known, &["groups"]].concat())) {
                (Some(instead), _) => instead.to_string(),
                (None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None) => format!("it has {}", listed(known)),
            };
            errors.add(member, format!("`{optimizer}` has no hyperparameter `{parameter}`; {hint}"));
            continue;
        }
        if given.contains(&parameter) {
            errors.add(member, format!("`{parameter}` is given twice; remove one"));
            continue;
        }
        let value = &field.expr;
        if !is_zero(value) {
            set.push(parameter.clone());
        }
        if parameter != "groups" {
            written.push((parameter.clone(), Place::of(value)));
        }
        match parameter.as_str() {
            "groups" => grouped = Some((member, value)),
            name if name.ends_with("_lr") => relative.push((member, value)),
            "lr" => {
                lr = number(value);
                tokens.extend(quote!(#member: #value,));
            }
            _ => tokens.extend(quote!(#member: #value,)),
        }
        given.push(parameter);
    }
    // A rate other than `lr` is stored as a multiple of it, so that `set_lr` changes both.
    for (member, value) in relative {
        let member = Ident::new(&format!("{member}_factor"), member.span());
        let value = number(value);
        tokens.extend(quote!(#member: #value / #lr,));
    }
    let mut group_places = Vec::new();
    if let Some((member, value)) = grouped {
        let groups = groups(value, &Owner { row, lr: &lr, constants }, resolved, errors);
        let all = groups.iter().map(|(tokens, _)| tokens);
        tokens.extend(quote!(#member: &[#(#all)*],));
        group_places = groups.iter().map(|(_, place)| *place).collect();
    }
    Hyperparameters { tokens, set, complete: given.len() == known.len() + 1, written, groups: group_places }
}

/// Returns a number with its type, for generated arithmetic. If it is not an `f64`, the compiler points at it.
fn number(value: &Expr) -> TokenStream {
    let place = Span::mixed_site().located_at(value.span());
    quote_spanned!(place=> { let number: f64 = #value; number })
}

/// Returns the list of groups. `None` if it is not written as a list.
fn list_of_groups(value: &Expr) -> Option<&syn::ExprArray> {
    match plain(value) {
        Expr::Reference(reference) => list_of_groups(&reference.expr),
        Expr::Array(list) => Some(list),
        _ => None,
    }
}

/// Facts of an optimizer that its groups need.
struct Owner<'o> {
    row: &'o Row,
    /// The learning rate of the optimizer.
    lr: &'o TokenStream,
    constants: &'o [Constant],
}

/// Reads `[Group { paths: "*.bias, *norm*", weight_decay: 0.0 }]`. Returns each group as Rust code with a comma, and the place of its source.
///
/// `layer_decay` makes several groups of one.
fn groups(value: &Expr, owner: &Owner<'_>, resolved: &Resolved, errors: &mut Errors) -> Vec<(TokenStream, Place)> {
    let Some(list) = list_of_groups(value) else {
        let message = "the groups are read by the macro as they stand; write a list, as \
                       `[Group { paths: \"*.bias\", weight_decay: 0.0 }]`";
        errors.add(Place::of(value), message);
        return Vec::new();
    };
    let all = list.elems.iter().flat_map(|group| {
        let place = Place::of(group);
        one_group(group, owner, resolved, errors).into_iter().map(move |tokens| (tokens, place))
    });
    all.collect()
}

/// Returns the group, or with `layer_decay` one for each of its layers.
fn one_group(value: &Expr, owner: &Owner<'_>, resolved: &Resolved, errors: &mut Errors) -> Vec<TokenStream> {
    let Owner { row, lr, constants } = owner;
    let name = |group: &syn::ExprStruct| group.path.segments.last().map(|segment| segment.ident.clone());
    let (group, name) = match plain(value) {
        Expr::Struct(group) if name(group).is_some_and(|name| name == "Group") => (group, name(group)),
        _ => {
            errors.add(Place::of(value), "expected a group, as `Group { paths: \"*.bias\", weight_decay: 0.0 }`");
            return Vec::new();
        }
    };
    if let Some(rest) = &group.dot2_token {
        errors.add(Place::of(rest), "what a group leaves out is as the optimizer has it; remove this");
    }
    let own = row.of_groups;
    let (mut given, mut tokens): (Vec<String>, _) = (Vec::new(), TokenStream::new());
    let (mut paths, mut rate, mut layered) = (None, None, None);
    for field in &group.fields {
        let syn::Member::Named(member) = &field.member else {
            errors.add(Place::of(&field.member), format!("expected {}", either(&[&GROUP, own].concat())));
            continue;
        };
        let (name, value) = (member.to_string(), &field.expr);
        if given.contains(&name) {
            errors.add(member, format!("`{name}` is given twice; remove one"));
            continue;
        }
        match name.as_str() {
            "paths" => {
                check_paths(value, resolved, errors);
                paths = Some(value);
            }
            "lr" => {
                let value = number(value);
                rate = Some(quote!(#value / #lr));
            }
            "weight_decay" => {
                let value = number(value);
                tokens.extend(quote!(weight_decay: ::core::option::Option::Some(#value),));
            }
            "layer_decay" => layered = Layered::read(value, constants, errors),
            name if own.contains(&name) => tokens.extend(quote!(#member: ::core::option::Option::Some(#value),)),
            _ => {
                let known = [&GROUP, own].concat();
                let hint = match nearest(&name, &known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("it has {}", listed(&known)),
                };
                let is_shared = row.fields.contains(&name.as_str());
                let hint = if is_shared { format!("`{name}` is the same for all parameters") } else { hint };
                errors.add(member, format!("a group has no `{name}`; {hint}"));
            }
        }
        given.push(name);
    }
    if paths.is_none() {
        errors.add(Place::of(value), "a group needs the names of its parameters, as `paths: \"*.bias\"`");
    } else if given.len() == 1 {
        errors.add(Place::of(value), "this group changes nothing; give it an `lr` or a `weight_decay`, or remove it");
    }
    let name = Ident::new("Group", name.map_or_else(Span::call_site, |name| name.span()));
    let path = quote!(__gpumem::__private::train::optim);
    let made = |paths: TokenStream, factor: Option<TokenStream>| {
        let factor = factor.map(|factor| quote!(lr_factor: ::core::option::Option::Some(#factor),));
        quote!(#path::#name { paths: #paths, #factor #tokens ..#path::Group::DEFAULT },)
    };
    let layers = layered.zip(paths).and_then(|(layered, paths)| layers(layered, paths, resolved, errors));
    match (layers, paths) {
        (Some(layers), _) => {
            let of = |(paths, factor): (String, f64)| {
                let factor = Literal::f64_unsuffixed(factor);
                let rate = rate.as_ref().map_or_else(|| quote!(#factor), |rate| quote!(#rate * #factor));
                made(quote!(#paths), Some(rate))
            };
            layers.into_iter().map(of).collect()
        }
        (None, Some(paths)) => vec![made(quote!(#paths), rate)],
        (None, None) => vec![made(quote!(""), rate)],
    }
}

/// Checks that every path matches a parameter that is trained.
fn check_paths(value: &Expr, resolved: &Resolved, errors: &mut Errors) {
    let Expr::Lit(ExprLit { lit: Lit::Str(paths), .. }) = plain(value) else {
        errors.add(
            Place::of(value),
            "the paths are read by the macro as they stand; write them out, as `\"*.bias, *norm*\"`",
        );
        return;
    };
    // After a mistake in a layer, some parameters are not known.
    if resolved.outputs.is_none() {
        return;
    }
    let names: Vec<&str> = resolved.graph.trained_parameters().map(|parameter| parameter.name.as_str()).collect();
    for pattern in paths.value().split(',').map(str::trim) {
        if names.iter().any(|name| matches(pattern, name)) {
            continue;
        }
        errors.add(Place::of(value), unknown_path(pattern, &names));
    }
}

/// Returns the message for a path that matches none of these names.
pub(crate) fn unknown_path(pattern: &str, names: &[&str]) -> String {
    let hint = match (nearest(pattern, names), names.first(), names.last()) {
        (Some(near), ..) => format!("did you mean `{near}`?"),
        (None, Some(first), Some(last)) if first != last => {
            format!("their names are those from `{first}` to `{last}`")
        }
        (None, Some(only), _) => format!("there is `{only}`"),
        (None, ..) => "there is none".to_string(),
    };
    format!("no parameter that is trained is called `{pattern}`; {hint}")
}

/// Returns the message for `Adam(lr = 1e-3)`, which should be `Adam { lr: 1e-3 }`. `None` if the form is not recognised.
fn in_braces(call: &syn::ExprCall) -> Option<String> {
    let name = named(&call.func)?;
    let row = Optimizer::ROWS.iter().find(|row| name == row.name)?;
    let fields = call.args.iter().enumerate().map(|(index, argument)| match plain(argument) {
        Expr::Assign(assign) => Some(format!("{}: {}", last_name(&assign.left)?, text(&assign.right))),
        other => Some(format!("{}: {}", row.fields.get(index)?, text(other))),
    });
    let fields: Vec<String> = fields.collect::<Option<_>>()?;
    let written =
        if fields.is_empty() { row.name.to_string() } else { format!("{} {{ {} }}", row.name, fields.join(", ")) };
    Some(format!("hyperparameters stand in braces; write `{written}`"))
}

fn is_zero(value: &Expr) -> bool {
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Float(value), .. }) => {
            value.base10_parse::<f64>().is_ok_and(|value| value == 0.0)
        }
        Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => !value.value,
        other => literal(other) == Some(0),
    }
}

/// Returns the name of the optimizer in any form: `Adam { .. }`, `Adam(..)`, `Adam::new(..)`.
pub(crate) fn named(value: &Expr) -> Option<&Ident> {
    let path = match plain(value) {
        Expr::Struct(written) => &written.path,
        Expr::Path(written) => &written.path,
        Expr::Call(call) => return named(&call.func),
        _ => return None,
    };
    let is_optimizer = |name: &&Ident| Optimizer::ROWS.iter().any(|row| *name == row.name);
    path.segments.iter().map(|segment| &segment.ident).find(is_optimizer)
}

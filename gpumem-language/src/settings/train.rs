//! Reads `TRAIN` and `INFER`. Fields that change the program must be literals and are read here; rustc evaluates the others.

use crate::errors::Errors;
use crate::resolve::Resolved;
use crate::settings::averages;
use crate::settings::cards::card_list;
use crate::settings::clip_and_schedule;
use crate::settings::literals;
use crate::settings::loss;
use crate::settings::micro_batches;
use crate::settings::offload;
use crate::settings::optimizer;
use crate::settings::ranks;
use crate::settings::reading::Reading;
use crate::settings::steps;
use crate::settings::values::{is_name, last_name, literal, number, one_of, plain, size, text};
use crate::syntax::{Constant, Declaration, Field, Place, Settings};
use gpumem_core::layers::mistake::listed;
use gpumem_core::lower::Cached;
use gpumem_core::suggest::nearest;
use gpumem_core::train::ConvNorm;
use gpumem_core::train::optim::Optimizer;
use gpumem_core::{Checkpoint, Half, Precision, Update};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::Expr;

const TRAIN_FIELDS: [&str; 26] = [
    "batch",
    "trains",
    "micro_batches",
    "ranks",
    "shard",
    "bucket",
    "channels",
    "sync_batch_norm",
    "precision",
    "optimizer",
    "loss",
    "cards",
    "update",
    "checkpoint",
    "conv_norm",
    "offload",
    "clip",
    "schedule",
    "measure",
    "skip",
    "ema",
    "conv_workspace",
    "headroom",
    "tf32",
    "deterministic",
    "seed",
];

pub(crate) const INFER_FIELDS: [&str; 6] = ["batch", "precision", "cards", "headroom", "cache", "chunk"];

/// Reads `const TRAIN`, or another constant of type `Train`.
pub(crate) fn train<'s>(
    settings: &'s Settings,
    is_generic: bool,
    resolved: &Resolved,
    constants: &[Constant],
    errors: &mut Errors,
) -> Reading<'s> {
    let constant = settings.name.to_string();
    let mut reading = Reading { settings: Some(settings), ..Reading::new(&constant) };
    let (mut written, mut split, mut offloaded) = (None, None, None);
    for field in known_fields(settings, &constant, &TRAIN_FIELDS, errors) {
        let (name, value) = (&field.name, &field.value);
        let tokens = match name.to_string().as_str() {
            "batch" => batch("Train", field, &mut reading, errors),
            "trains" => steps::trains(value, resolved, &mut reading, errors),
            "micro_batches" => {
                split = Some(value);
                micro_batches::batches(value, &mut reading, errors)
            }
            "ranks" => ranks::ranks(value, &mut reading, errors),
            "shard" => ranks::shard(value, &mut reading, errors),
            "bucket" => ranks::bucket(value, &mut reading, errors),
            "channels" => ranks::channels(value, &mut reading, errors),
            "sync_batch_norm" => ranks::sync_batch_norm(value, &mut reading, errors),
            "precision" => precision(value, &mut reading, errors),
            "optimizer" => optimizer::read(value, resolved, constants, &mut reading, errors),
            "loss" => {
                reading.loss = loss::read(value, resolved, errors);
                let terms = &reading.loss.tokens;
                quote!(&[#terms])
            }
            "cards" => cards(value, &mut reading, errors),
            "checkpoint" => checkpoint(value, &mut reading, errors),
            "conv_norm" => conv_norm(value, &mut reading, errors),
            "update" => {
                written = Some(value);
                update(value, &mut reading, errors)
            }
            "offload" => {
                offloaded = Some(value);
                offload::read(value, &mut reading, errors)
            }
            "clip" => clip_and_schedule::clip(value, constants, &mut reading, errors),
            "schedule" => clip_and_schedule::schedule(value, constants, &mut reading, errors),
            "measure" => clip_and_schedule::measure(value, &mut reading, errors),
            "skip" => clip_and_schedule::skip(value, &mut reading, errors),
            "ema" => averages::read(value, constants, &mut reading, errors),
            "headroom" => bytes("Train", field, &mut reading.headroom, errors),
            "conv_workspace" => bytes("Train", field, &mut reading.conv_workspace, errors),
            _ => literals::field("Train", name, value, errors),
        };
        reading.fields.extend(quote!(#name: #tokens,));
    }
    let separate = clip_and_schedule::separate(&mut reading, written, errors);
    reading.complete = settings.fields.len() + usize::from(separate.is_some()) == TRAIN_FIELDS.len();
    reading.fields.extend(separate);
    check_batch(settings, is_generic, errors);
    if let Some(value) = split {
        micro_batches::check(value, &mut reading, errors);
    }
    ranks::check(settings, is_generic, &mut reading, errors);
    if let Some(value) = offloaded {
        offload::check(value, settings, &mut reading, errors);
    }
    // The default loss is checked too.
    if !settings.fields.iter().any(|field| field.name == "loss") {
        reading.loss = loss::default(resolved, errors);
    }
    reading
}

/// Reports a step without a batch. The memory of a step depends mostly on its batch, so the batch has no default.
fn check_batch(settings: &Settings, is_generic: bool, errors: &mut Errors) {
    let meant = |field: &Field| nearest(&field.name.to_string(), &TRAIN_FIELDS) == Some("batch");
    // In a generic network, `check_generic_batch` reports it.
    if !is_generic && !settings.is_broken && !settings.fields.iter().any(meant) {
        let message = format!("`{}` has no `batch`; write how many samples a step has, as `batch: 32`", settings.name);
        errors.add(settings.place, message);
    }
}

/// Reads `const INFER`.
pub(crate) fn infer<'s>(settings: &'s Settings, errors: &mut Errors) -> Reading<'s> {
    let mut reading = Reading { settings: Some(settings), ..Reading::new("INFER") };
    for field in known_fields(settings, "INFER", &INFER_FIELDS, errors) {
        let (name, value) = (&field.name, &field.value);
        let tokens = match name.to_string().as_str() {
            "batch" => batch("Infer", field, &mut reading, errors),
            "precision" => precision(value, &mut reading, errors),
            "cards" => cards(value, &mut reading, errors),
            "headroom" => bytes("Infer", field, &mut reading.headroom, errors),
            _ => literals::field("Infer", name, value, errors),
        };
        reading.fields.extend(quote!(#name: #tokens,));
    }
    reading.complete = settings.fields.len() == INFER_FIELDS.len();
    reading.cached = cached(settings, errors);
    reading
}

/// Reads `cache` and `chunk`. `None` if there is no cache.
fn cached(settings: &Settings, errors: &mut Errors) -> Option<(Cached, Place)> {
    let mut steps = |name: &str| {
        let field = settings.fields.iter().find(|field| field.name == name)?;
        let value = literal(&field.value);
        match value {
            Some(0) => errors.add(Place::of(&field.value), format!("`{name}` is 0 steps; use at least 1")),
            Some(_) => {}
            None if literals::is_negative(&field.value) => {
                let steps = text(&field.value).replace("- ", "-");
                errors.add(Place::of(&field.value), format!("`{name}` is {steps} steps; use at least 1"));
            }
            None => errors
                .add(Place::of(&field.value), format!("`{name}` changes the program, so it must be a literal number")),
        }
        Some((value.unwrap_or(0), Place::from(&field.name).to(Place::of(&field.value))))
    };
    match (steps("cache"), steps("chunk")) {
        (None, None) => None,
        (None, Some((_, place))) => {
            errors.add(place, "`chunk` says how many steps of a sequence go into one pass; write `cache` too, the most that it can have");
            None
        }
        (Some((steps, place)), chunk) => {
            let (chunk, at) = chunk.unwrap_or((1, place));
            if chunk > steps && steps > 0 {
                errors
                    .add(at, format!("a pass has {chunk} steps, but `cache` keeps only {steps}; use at most {steps}"));
            }
            Some((Cached { steps, chunk }, place))
        }
    }
}

/// Checks that a network that is generic over its batch uses the parameter itself, since the network's types name the batch.
pub(crate) fn check_generic_batch(declaration: &Declaration, primary: Option<&Reading<'_>>, errors: &mut Errors) {
    let Some(parameter) = &declaration.batch else { return };
    match primary {
        Some(Reading { batch: Some(field), takes_largest, .. }) => {
            if !is_name(&field.value, parameter) {
                let name = &declaration.name;
                let instead = match takes_largest {
                    true => format!("the largest is `max_batch!({name}<1>, RTX_3060)`, where the network is used"),
                    false => "compute it where the network is used".to_string(),
                };
                let message = format!("a network over `{parameter}` has `batch: {parameter}`; {instead}");
                errors.add(Place::of(&field.value), message);
            }
        }
        Some(Reading { constant, .. }) => {
            errors.add(parameter, format!("nothing uses `{parameter}`; write `batch: {parameter}` in `{constant}`"));
        }
        None => errors.add(
            parameter,
            format!("nothing uses `{parameter}`; add `const INFER: Infer = Infer {{ batch: {parameter} }};`"),
        ),
    }
}

/// Returns the fields with a known name, each once. Reports the others.
fn known_fields<'s>(settings: &'s Settings, constant: &str, known: &[&str], errors: &mut Errors) -> Vec<&'s Field> {
    let mut fields: Vec<&Field> = Vec::new();
    for field in &settings.fields {
        let name = field.name.to_string();
        if !known.contains(&name.as_str()) {
            let hint = field_hint(field, settings, known);
            errors.add(&field.name, format!("`{constant}` has no field `{name}`; {hint}"));
        } else if fields.iter().any(|earlier| earlier.name == name) {
            errors.add(&field.name, format!("`{name}` is given twice; remove one"));
        } else {
            fields.push(field);
        }
    }
    fields
}

/// Returns advice on what to write instead of a field that does not exist.
fn field_hint(field: &Field, settings: &Settings, known: &[&str]) -> String {
    let name = field.name.to_string();
    let trains = known.contains(&"optimizer");
    let optimizers = || Optimizer::ROWS.iter().filter(|row| row.fields.contains(&name.as_str()));
    if trains && let Some(first) = optimizers().next() {
        // Prefers the optimizer that is written, if it has such a hyperparameter.
        let written = settings
            .fields
            .iter()
            .find(|field| field.name == "optimizer")
            .and_then(|field| optimizer::named(&field.value));
        let row = optimizers().find(|row| written.is_some_and(|written| written == row.name)).unwrap_or(first);
        let value = text(&field.value);
        return format!("it belongs to the optimizer, as `optimizer: {} {{ {name}: {value} }}`", row.name);
    }
    match name.as_str() {
        "epochs" | "num_epochs" | "steps" | "max_steps" | "iterations" | "shuffle" if trains => {
            return "it says what one step is; how often `train_step` is called, and with which samples, is up to the loop \
                    around it"
                .to_string();
        }
        "device" | "gpu" | "gpus" | "accelerator" => {
            return "where a network runs is said where it is loaded, `Net::on(&device)`; the cards that it must fit are \
                    `cards: [RTX_3060]`"
                .to_string();
        }
        "dtype" | "amp" | "fp16" | "bf16" => {
            return "did you mean `precision`, as `precision: Mixed(Bf16)`?".to_string();
        }
        "clip_grad_norm" | "max_grad_norm" | "max_norm" | "gradient_clip_val" if trains => {
            return format!("did you mean `clip`, as `clip: GlobalNorm({})`?", text(&field.value));
        }
        "lr_scheduler" | "scheduler" if trains => {
            return "did you mean `schedule`, as `schedule: Cosine { warmup: 100, total: 5000 }`?".to_string();
        }
        "grad_scaler" | "scaler" | "skip_nan" | "skip_non_finite" | "detect_anomaly" if trains => {
            return "did you mean `skip`, as `skip: NonFinite`?".to_string();
        }
        "ema_decay" | "model_ema" | "average" | "averages" | "swa" if trains => {
            return format!("did you mean `ema`, as `ema: {}`?", text(&field.value));
        }
        "log_grad_norm" | "track_grad_norm" | "grad_norm" if trains => {
            return "did you mean `measure`, as `measure: GradientNorm`?".to_string();
        }
        "world_size" | "nproc_per_node" | "num_gpus" | "data_parallel" if trains => {
            return format!("did you mean `ranks`, as `ranks: {}`?", text(&field.value));
        }
        "fsdp" | "zero" | "zero_stage" | "sharding" | "sharding_strategy" if trains => {
            return "did you mean `shard`, as `ranks: 8, shard: Parameters`?".to_string();
        }
        "criterion" if trains => return "did you mean `loss`?".to_string(),
        _ => {}
    }
    match nearest(&name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("its fields are {}", listed(known)),
    }
}

fn batch<'s>(kind: &str, field: &'s Field, reading: &mut Reading<'s>, errors: &mut Errors) -> TokenStream {
    reading.batch = Some(field);
    let value = &field.value;
    reading.takes_largest = matches!(plain(value), Expr::Path(path) if path.path.is_ident("Largest"));
    reading.known_batch = literal(value);
    if reading.takes_largest { quote!(1) } else { literals::field(kind, &field.name, value, errors) }
}

fn cards(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let (tokens, cards) = card_list(value, errors);
    reading.cards = cards;
    tokens
}

/// Reads a number of bytes into `known`.
fn bytes(kind: &str, field: &Field, known: &mut Option<u64>, errors: &mut Errors) -> TokenStream {
    *known = size(&field.value);
    literals::field(kind, &field.name, &field.value, errors)
}

fn precision(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let path = quote_spanned!(Span::call_site()=> __gpumem::__private::Precision);
    if let Expr::Call(call) = plain(value)
        && last_name(&call.func).is_some_and(|name| name == "Mixed")
        && call.args.len() == 1
    {
        let halves = [("Bf16", Half::Bf16), ("F16", Half::F16)];
        let (name, half) = halves[one_of(&call.args[0], "16-bit format", &halves.map(|(name, _)| name), errors)];
        reading.precision = Precision::Mixed(half);
        let half = Ident::new(name, Span::call_site());
        return quote!(#path::Mixed(__gpumem::__private::Half::#half));
    }
    let names = ["F32", "Bf16", "F16", "Mixed(Bf16)", "Mixed(F16)"];
    let plain = one_of(value, "precision", &names, errors).min(2);
    reading.precision = [Precision::F32, Precision::Bf16, Precision::F16][plain];
    let name = Ident::new(names[plain], Span::call_site());
    quote!(#path::#name)
}

fn update(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let updates = [("Fused", Update::Fused), ("Separate", Update::Separate)];
    let (name, update) = updates[one_of(value, "update", &["Fused", "Separate"], errors)];
    reading.update = update;
    let name = Ident::new(name, Span::call_site());
    quote!(__gpumem::__private::Update::#name)
}

/// Reads `Fused` or `Separate`.
fn conv_norm(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let chosen = one_of(value, "value of `conv_norm`", &ConvNorm::NAMES, errors);
    reading.conv_norm = ConvNorm::ALL[chosen];
    let name = Ident::new(ConvNorm::NAMES[chosen], Span::call_site());
    quote!(__gpumem::__private::train::ConvNorm::#name)
}

/// Reads `Norms`, `None`, `Cheap`, `Auto` or `Budget(0.6)`.
fn checkpoint(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let path = quote!(__gpumem::__private::Checkpoint);
    if let Expr::Call(call) = plain(value)
        && last_name(&call.func).is_some_and(|name| name == "Budget")
        && let Some(share) = call.args.first().filter(|_| call.args.len() == 1)
    {
        return match number(share).filter(|share| !share.is_sign_negative()) {
            Some(share) if share > 0.0 && share <= 1.0 => {
                reading.checkpoint = Checkpoint::Budget(share);
                quote!(#path::Budget(#share))
            }
            Some(_) => {
                let message = "the budget is a share of what activations take without recomputation, above 0 and at most 1, as \
                               `Budget(0.6)`";
                errors.add(Place::of(share), message);
                quote!(#path::Norms)
            }
            None => {
                let message = "the budget must be literal, since the macro reads it; write a number, as `Budget(0.6)`";
                errors.add(Place::of(share), message);
                quote!(#path::Norms)
            }
        };
    }
    let names = ["Norms", "None", "Cheap", "Auto", "Budget(0.6)"];
    let chosen = one_of(value, "checkpoint", &names, errors);
    let simple = [Checkpoint::Norms, Checkpoint::None, Checkpoint::Cheap, Checkpoint::Auto];
    reading.checkpoint = simple.get(chosen).copied().unwrap_or_default();
    let name = Ident::new(names.get(chosen).filter(|_| chosen < simple.len()).unwrap_or(&"Norms"), Span::call_site());
    quote!(#path::#name)
}

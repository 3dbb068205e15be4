//! Names from PyTorch and Keras that no layer here has: what to write in their place.

use gpumem_core::layers::Entry;
use gpumem_core::layers::mistake::{either, listed};

/// What a name is in other libraries.
pub(super) struct Habit {
    /// To be read after "no layer or block is called ..".
    pub(super) hint: String,
    /// The layer to go on with.
    pub(super) meant: Option<&'static str>,
    /// Whether it has the shape of what arrives.
    pub(super) keeps_shape: bool,
}

/// The same layer under another name.
const SAME: [(&str, &str); 9] = [
    ("dense", "Linear"),
    ("convolution2d", "Conv2d"),
    ("conv2dtranspose", "ConvTranspose2d"),
    ("globalaveragepooling2d", "GlobalAvgPool"),
    ("globalavgpool2d", "GlobalAvgPool"),
    ("averagepooling2d", "AvgPool2d"),
    ("maxpooling2d", "MaxPool2d"),
    ("upsampling2d", "Upsample"),
    ("swish", "Silu"),
];

/// What layers of a family have in common: a part of their names, and a word for them.
const FAMILIES: [(&str, &str); 5] = [
    ("conv", "of the convolutions there are"),
    ("norm", "of the normalisations there are"),
    ("pool", "of the poolings there are"),
    ("attention", "of the attentions there are"),
    ("dropout", "of this kind there is"),
];

/// Functions of one number.
const FUNCTIONS: [&str; 17] = [
    "elu",
    "celu",
    "selu",
    "glu",
    "prelu",
    "rrelu",
    "mish",
    "softplus",
    "softsign",
    "softshrink",
    "hardshrink",
    "tanhshrink",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "logsigmoid",
    "threshold",
];

/// What `name` is elsewhere, if no layer is called so.
pub(super) fn habit(name: &str) -> Option<Habit> {
    let plain = name.to_lowercase().replace('_', "");
    let plain = plain.as_str();
    if let Some((_, meant)) = SAME.iter().find(|(other, _)| *other == plain) {
        return Some(Habit { hint: format!("here it is `{meant}`"), meant: Some(meant), keeps_shape: false });
    }
    let says = |hint: &str, keeps_shape: bool| Some(Habit { hint: hint.into(), meant: None, keeps_shape });
    let recurrent = ["lstm", "gru", "rnn", "lstmcell", "grucell", "rnncell", "bidirectional", "simplernn"];
    match plain {
        _ if recurrent.contains(&plain) => {
            let attention = either(&family("attention"));
            let hint =
                format!("recurrent layers are not among the layers; sequences go through attention: {attention}");
            says(&hint, false)
        }
        "sequential" | "modulelist" => says("layers are listed, as `[Linear(8), Relu]`", false),
        "identity" => says("what passes its input on is `[]`", true),
        "logsoftmax" => says("`CrossEntropy` takes the logits as they are; leave it out", true),
        "crossentropyloss" | "mseloss" | "nllloss" => {
            says("the loss is a field of `TRAIN`, as `loss: CrossEntropy`", true)
        }
        "flip" | "reshape" | "view" | "permute" | "transpose" | "squeeze" | "unsqueeze" | "unflatten" => {
            says("see `gpumem::layers` for what changes shapes", false)
        }
        _ if FUNCTIONS.contains(&plain) => {
            let functions: Vec<&str> = Entry::all().filter(Entry::is_function).map(|entry| entry.name).collect();
            says(&format!("of the functions there are {}", listed(&functions)), true)
        }
        _ => of_family(plain),
    }
}

/// A layer of another number of axes, `Conv1d`, or any of a family, `InstanceNorm2d`.
fn of_family(plain: &str) -> Option<Habit> {
    let is_other = plain.ends_with("1d") || plain.ends_with("2d") || plain.ends_with("3d");
    let known = Entry::names().iter().any(|name| name.to_lowercase() == plain);
    let (part, word) = FAMILIES.iter().find(|(part, _)| plain.contains(part))?;
    // Anything else is a name that was misspelt.
    let whole = ["norm", "attention"].iter().any(|end| plain.ends_with(end));
    if known || !(is_other || whole) {
        return None;
    }
    let keeps_shape = ["norm", "dropout"].contains(part);
    Some(Habit { hint: format!("{word} {}", listed(&family(part))), meant: None, keeps_shape })
}

/// The layers of a family.
fn family(part: &str) -> Vec<&'static str> {
    Entry::names().into_iter().filter(|name| name.to_lowercase().contains(part)).collect()
}

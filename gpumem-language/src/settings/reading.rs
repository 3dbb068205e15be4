//! The settings of a constant after they were read.

use crate::settings::loss;
use crate::syntax::{Field, Place, Settings};
use gpumem_core::cards::Card;
use gpumem_core::lower::Cached;
use gpumem_core::train::{ConvNorm, Descent, Train};
use gpumem_core::{Checkpoint, Precision, Update};
use proc_macro2::{Ident, Span, TokenStream};

/// The settings of `TRAIN`, of another training step, or of `INFER`.
///
/// Only the files of this folder read literals. A number that they cannot read is `None`: then const evaluation is the first to know it.
#[derive(Clone)]
pub(crate) struct Reading<'s> {
    /// The constant's name.
    pub(crate) constant: String,
    /// The constant as syntax. `None` for default settings.
    pub(crate) settings: Option<&'s Settings>,
    /// Patterns of the parameters that the step trains. The next field is their place.
    pub(crate) trains: String,
    pub(crate) trains_at: Option<Place>,
    /// The field `batch`. `None` if it is not written.
    pub(crate) batch: Option<&'s Field>,
    /// True for `batch: Largest`. The generated fields have a batch of 1 then.
    pub(crate) takes_largest: bool,
    /// The number in `batch`: 1 if the field is left out, `None` if rustc evaluates it.
    pub(crate) known_batch: Option<u64>,
    /// The cards in `cards`, without those of Cargo features and environment variables.
    pub(crate) cards: Vec<Card>,
    /// Bytes in `headroom`; `None` if rustc evaluates it.
    pub(crate) headroom: Option<u64>,
    /// Bytes in `conv_workspace`; `None` if rustc evaluates it.
    pub(crate) conv_workspace: Option<u64>,
    /// Every field as Rust, each with a comma.
    pub(crate) fields: TokenStream,
    /// True if every field is given, so that no default is needed.
    pub(crate) complete: bool,
    pub(crate) loss: loss::Reading,
    /// State tensors of the optimizer for each parameter: see `gpumem_core::train::optim::with_state`.
    pub(crate) moments: u64,
    /// The place of the optimizer. `None` if it is not written.
    pub(crate) optimizer: Option<Place>,
    /// The hyperparameters that are written, with their places.
    pub(crate) hyperparameters: Vec<(String, Place)>,
    /// The place of each group of parameters.
    pub(crate) groups: Vec<Place>,
    pub(crate) update: Update,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) conv_norm: ConvNorm,
    /// Settings that change gradients and the learning rate before an update.
    pub(crate) descent: Descent,
    /// The place of `micro_batches`, if const evaluation has to check that it divides the batch.
    pub(crate) split: Option<Place>,
    /// The place of the last rate of a schedule, if that is not 0.
    pub(crate) least: Option<Place>,
    pub(crate) precision: Precision,
    /// True if environment variables change nothing, as for a text that no compiler reads.
    pub(crate) is_alone: bool,
    /// The cache of `INFER`, and the place of `cache`. `None` without a cache.
    pub(crate) cached: Option<(Cached, Place)>,
}

impl Reading<'_> {
    /// Returns the settings of a constant without fields.
    pub(crate) fn new(constant: &str) -> Self {
        Reading {
            constant: constant.to_string(),
            settings: None,
            trains: "*".to_string(),
            trains_at: None,
            batch: None,
            takes_largest: false,
            known_batch: Some(1),
            cards: Vec::new(),
            headroom: Some(Train::DEFAULT.headroom),
            conv_workspace: Some(Train::DEFAULT.conv_workspace),
            fields: TokenStream::new(),
            complete: false,
            loss: loss::Reading::default(),
            moments: 0,
            optimizer: None,
            hyperparameters: Vec::new(),
            groups: Vec::new(),
            update: Update::Fused,
            checkpoint: Checkpoint::Norms,
            conv_norm: ConvNorm::Fused,
            descent: Descent::PLAIN,
            split: None,
            least: None,
            precision: Precision::F32,
            is_alone: false,
            cached: None,
        }
    }
}

impl Reading<'_> {
    /// Returns the constant's name as an identifier in generated code.
    pub(crate) fn ident(&self) -> Ident {
        let written = self.settings.map(|settings| settings.name.clone());
        let mut name = written.unwrap_or_else(|| Ident::new(&self.constant, Span::call_site()));
        name.set_span(Span::call_site());
        name
    }

    /// Returns the place of a field, or that of the constant's name.
    pub(crate) fn place_of(&self, field: &str) -> Place {
        let settings = self.settings;
        let written = settings.and_then(|settings| settings.fields.iter().find(|written| written.name == field));
        let place = written.map(|field| Place::of(&field.value)).or(settings.map(|settings| settings.place));
        place.unwrap_or_else(|| Place::from(Span::call_site()))
    }
}

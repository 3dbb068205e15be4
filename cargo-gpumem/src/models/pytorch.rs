//! Predicts the memory that PyTorch would need for the same step.

use crate::options::{Counting, FileOptions, Implementation, Kernels};
use gpumem_core::report::Device;
use gpumem_core::train::Ranks;
use gpumem_core::{Half, Precision};
use gpumem_import::model::{Dtype, Model, StateKind};
use gpumem_import::torch::{self, Algorithm, Attention, Autocast, Optimizer, Report, Request, Rules, Update};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A prediction for one batch, and the means to make it for others.
pub struct Prediction<'m> {
    model: Cow<'m, Model>,
    request: Request,
    reports: RefCell<BTreeMap<u64, Result<Rc<Report>, String>>>,
}

/// The memory of a step in PyTorch, in bytes.
pub struct PyTorch {
    pub report: Rc<Report>,
    /// Bytes that the caching allocator holds on a card with more than enough memory, and with expandable segments.
    pub reserved: u64,
    pub reserved_expandable: u64,
    /// The answer for each device.
    pub on: Vec<OnDevice>,
}

/// A step in PyTorch on a device.
pub struct OnDevice {
    pub device: Device,
    pub fits: bool,
    /// True if it fits with `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
    pub fits_expandable: bool,
    /// The largest batch that runs. `None` if not even one sample does.
    pub largest_batch: Option<u64>,
}

impl<'m> Prediction<'m> {
    /// Prepares predictions. Fails with the reason if PyTorch has no such optimizer, or no such precision is predicted.
    pub fn new(
        model: &'m Model,
        (precision, optimizer): (Option<Precision>, &str),
        options: &FileOptions,
    ) -> Result<Prediction<'m>, String> {
        let autocast = match precision {
            None | Some(Precision::F32) => None,
            Some(Precision::Mixed(Half::Bf16)) => Some(Autocast::Bf16),
            Some(Precision::Mixed(Half::F16)) => Some(Autocast::F16),
            // Its operations are exported in that format.
            Some(Precision::Bf16) if has_weights_in(model, Dtype::Bf16) => None,
            Some(Precision::F16) if has_weights_in(model, Dtype::F16) => None,
            Some(other) => {
                let half = other.name();
                let as_torch = if other == Precision::F16 { "half" } else { "bfloat16" };
                return Err(format!(
                    "weights in {half} are predicted for a model that was exported so: `model.{as_torch}()`; the precision Mixed({half}) is autocast"
                ));
            }
        };
        let (rules, default) = match options.pytorch_rules {
            Counting::Card => (Rules::cuda(), Update::ForEach),
            Counting::Tracker => (Rules::tracker(), Update::ForLoop),
        };
        let attention = match options.attention {
            Kernels::Fused => Attention::Fused,
            Kernels::Math => Attention::Math,
        };
        let update = options.pytorch_update.map_or(default, |update| match update {
            Implementation::Foreach => Update::ForEach,
            Implementation::ForLoop => Update::ForLoop,
            Implementation::Fused => Update::Fused,
        });
        let rules = Rules { autocast, attention, ..rules };
        let request = Request { rules, optimizer: algorithm(optimizer, update)?, partial: true, ..Request::default() };
        let model = torch::without_idle_masks(model, rules.tracker);
        Ok(Prediction { model, request, reports: RefCell::default() })
    }

    /// Predicts a step of so many samples.
    pub fn report(&self, batch: u64) -> Result<Rc<Report>, String> {
        let mut reports = self.reports.borrow_mut();
        let predict = || {
            let request = Request { batch: Some(batch), ..self.request };
            torch::predict(&self.model, &request).map(Rc::new).map_err(|refusal| refusal.to_string())
        };
        reports.entry(batch).or_insert_with(predict).clone()
    }

    /// Predicts a step of so many samples, and compares it with devices, of each of which `headroom` bytes are left to others.
    pub fn at(&self, batch: u64, devices: &[Device], headroom: u64) -> Result<PyTorch, String> {
        let report = self.report(batch)?;
        let on = devices.iter().map(|&device| self.on(&report, device, headroom)).collect::<Result<_, String>>()?;
        Ok(PyTorch {
            reserved: report.reserved(false, None).reserved,
            reserved_expandable: report.reserved(true, None).reserved,
            report,
            on,
        })
    }

    fn on(&self, report: &Report, device: Device, headroom: u64) -> Result<OnDevice, String> {
        let capacity = device.room(headroom, Ranks::ALONE);
        let fits = report.fits(false, capacity);
        let fits_expandable = report.fits(true, capacity);
        let largest_batch = torch::largest_batch(capacity, false, |batch| self.report(batch))?;
        Ok(OnDevice { device, fits, fits_expandable, largest_batch })
    }
}

/// True if all trained parameters of a model have this format.
fn has_weights_in(model: &Model, format: Dtype) -> bool {
    let trained = model.state.iter().filter(|state| state.kind == StateKind::Parameter { trains: true });
    let mut formats = trained.map(|state| model.values[state.value].dtype).peekable();
    formats.peek().is_some() && formats.all(|dtype| dtype == format)
}

/// Returns PyTorch's algorithm for an optimizer that is written as in `TRAIN`, or by its name.
fn algorithm(text: &str, update: Update) -> Result<Optimizer, String> {
    let (name, fields) = text.split_once('{').unwrap_or((text, ""));
    let fields = fields.trim_end_matches('}').split(',').filter_map(|field| field.split_once(':'));
    let fields: BTreeMap<&str, &str> = fields.map(|(name, value)| (name.trim(), value.trim())).collect();
    let is_set = |field: &str| fields.get(field).is_some_and(|value| *value == "true" || is_positive(value));
    let amsgrad = is_set("amsgrad");
    let algorithm = match &name.trim().to_lowercase().replace(['-', '_'], "")[..] {
        "sgd" => Algorithm::Sgd { momentum: is_set("momentum"), nesterov: is_set("nesterov") },
        "adam" => Algorithm::Adam { amsgrad },
        "adamw" => Algorithm::AdamW { amsgrad },
        "nadam" => Algorithm::NAdam,
        "rmsprop" => Algorithm::RmsProp,
        "adagrad" => Algorithm::Adagrad,
        "adadelta" => Algorithm::Adadelta,
        _ => return Err(format!("PyTorch's memory for {} is not known", name.trim())),
    };
    let decays = match fields.get("weight_decay") {
        Some(value) => is_positive(value),
        None => matches!(algorithm, Algorithm::AdamW { .. }),
    };
    Ok(Optimizer { algorithm, update, weight_decay: decays })
}

fn is_positive(value: &str) -> bool {
    value.parse::<f64>().is_ok_and(|number| number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimizers_are_those_of_pytorch() {
        let read =
            |text: &str| algorithm(text, Update::Fused).map(|optimizer| (optimizer.algorithm, optimizer.weight_decay));
        let sgd = |momentum, nesterov| Algorithm::Sgd { momentum, nesterov };
        assert_eq!(read("sgd"), Ok((sgd(false, false), false)));
        assert_eq!(
            read("Sgd { lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 1e-4 }"),
            Ok((sgd(true, true), true))
        );
        assert_eq!(read("AdamW {}"), Ok((Algorithm::AdamW { amsgrad: false }, true)));
        assert_eq!(
            read("adam-w { amsgrad: true, weight_decay: 0.0 }"),
            Ok((Algorithm::AdamW { amsgrad: true }, false))
        );
        assert_eq!(read("Lion { lr: 1e-4 }"), Err("PyTorch's memory for Lion is not known".into()));
    }
}

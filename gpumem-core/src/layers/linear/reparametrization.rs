//! Weights that are functions of parameters, as options of layers that have a weight.

use crate::layers::arguments::{Argument, Arguments};
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::{Role, inverse_sqrt};
use crate::program::Init;
use crate::program::ops::{Reparametrize, SpectralNorm};
use crate::shape::Shape;
use alloc::format;
use alloc::vec;

/// The function that computes a weight from its parameters.
#[derive(Clone, Debug, Default)]
pub(in crate::layers) struct Reparametrization {
    /// The axis whose indices have a length each, if the weight is lengths times directions. `None` otherwise.
    weight_norm: Option<u64>,
    /// True if PyTorch's older names of lengths and directions are used.
    older_names: bool,
    /// True if each row or filter is normalised to mean 0 and variance 1.
    standardized: bool,
    /// A factor of each row or filter, times a learned one and over the root of its elements. `None` for no scaling.
    gamma: Option<f64>,
    /// The number that is added to the variance. `None` for the default.
    eps: Option<f64>,
    /// The axis that is the rows of the matrix, if the weight is divided by its largest singular value. `None` otherwise.
    spectral_norm: Option<u64>,
}

/// The default of `eps`, which is added to the variance.
const EPS: f64 = 1e-6;

impl Reparametrization {
    /// Reads the options of weight norm and of spectral norm. Rows of the latter are along axis `usual` by default.
    pub(in crate::layers) fn norm(from: &mut Arguments<'_>, usual: u64) -> Reparametrization {
        let axis = |value: &Argument| match value {
            Argument::Flag(is_wanted) => Some(is_wanted.then_some(0)),
            Argument::Integer(axis) => Some(Some(*axis)),
            _ => None,
        };
        let wanted = "`true`, or the axis of the weight along which lengths differ";
        let weight_norm =
            from.option("weight_norm").take_if_any(wanted, axis, ("", |_: &_| true), [Some(0), None]).flatten();
        let older_names = from.option("weight_norm_names").choice(&["original", "weight_g"]) == 1;
        let wanted = "`true`, or the axis of the weight that is the rows of a matrix";
        // The bare option means the axis `usual`.
        let axis = |value: &Argument| match value {
            Argument::Flag(is_wanted) => Some(is_wanted.then_some(usual)),
            Argument::Integer(axis) => Some(Some(*axis)),
            _ => None,
        };
        let spectral_norm =
            from.option("spectral_norm").take_if_any(wanted, axis, ("", |_: &_| true), [Some(0), None]).flatten();
        Reparametrization { weight_norm, older_names, spectral_norm, ..Reparametrization::default() }
    }

    /// Reads the options of weight norm, spectral norm and weight standardisation.
    pub(in crate::layers) fn read(from: &mut Arguments<'_>) -> Reparametrization {
        Reparametrization {
            standardized: from.option("standardized").flag(false),
            gamma: from.option("gamma").number_above_if_any(0.0),
            eps: from.option("eps").number_from_if_any(0.0),
            ..Reparametrization::norm(from, 0)
        }
    }

    /// Returns the options. If two of them exclude each other, reports a mistake and drops one.
    fn checked(&self, b: &mut Builder<'_>, rank: usize) -> Reparametrization {
        let mut checked = self.clone();
        if self.standardized && self.weight_norm.is_some() {
            let text = "has `standardized` and `weight_norm`, but a weight is made of its parameters in one way; remove one of them";
            b.report(Mistake::of("weight_norm", text));
            checked.weight_norm = None;
        }
        let is_made = self.standardized || self.weight_norm.is_some();
        if self.spectral_norm.is_some() && is_made {
            let other = if self.standardized { "standardized" } else { "weight_norm" };
            let text = format!(
                "has `{other}` and `spectral_norm`, but a weight is made of its parameters in one way; remove one of them"
            );
            b.report(Mistake::of("spectral_norm", text));
            checked.spectral_norm = None;
        }
        if let Some(axis) = self.spectral_norm.filter(|&axis| axis >= rank as u64) {
            let text = format!("has spectral_norm = {axis}, but its weight has {rank} axes; use a number below {rank}");
            b.report(Mistake::of("spectral_norm", text));
            checked.spectral_norm = Some(0);
        }
        let needs = [("gamma", self.gamma.is_some()), ("eps", self.eps.is_some())];
        for (name, _) in needs.into_iter().filter(|&(_, is_given)| is_given && !self.standardized) {
            let text = format!("has `{name}`, but its weight is not standardised; write `standardized` too");
            b.report(Mistake::of(name, text));
        }
        if self.older_names && self.weight_norm.is_none() {
            let text = "has `weight_norm_names`, but no weight norm; write `weight_norm` too";
            b.report(Mistake::of("weight_norm_names", text));
        }
        if let Some(axis) = self.weight_norm.filter(|&axis| axis >= rank as u64) {
            let text = format!("has weight_norm = {axis}, but its weight has {rank} axes; use a number below {rank}");
            b.report(Mistake::of("weight_norm", text));
            checked.weight_norm = Some(0);
        }
        checked
    }

    /// Adds a weight of this shape with the parameters that it is computed from. The first of them is initialised by `init`.
    pub(super) fn weight(&self, b: &mut Builder<'_>, shape: Shape, init: Init) -> Result<Value, Mistake> {
        let Reparametrization { weight_norm, older_names, standardized, gamma, eps, spectral_norm } =
            self.checked(b, shape.rank());
        if let Some(axis) = spectral_norm {
            return spectral(b, axis as usize, shape, init);
        }
        let (first, second) = match (weight_norm, older_names) {
            (None, _) => ("weight", "gain"),
            (Some(_), false) => ("parametrizations.weight.original1", "parametrizations.weight.original0"),
            (Some(_), true) => ("weight_v", "weight_g"),
        };
        let mut inputs = vec![b.parameter(first, shape.dims(), Role::Weight, init)];
        let axis = weight_norm.unwrap_or(0) as usize;
        let op = Reparametrize::along(axis, shape);
        let root = inverse_sqrt(op.length());
        let (op, factors) = match (weight_norm, standardized, gamma) {
            (Some(_), ..) => (Reparametrize { factor: root, scale: true, ..op }, Some(Init::Lengths)),
            (None, true, gamma) => {
                let (center, eps) = (true, eps.unwrap_or(EPS));
                let factor = gamma.map_or(1.0, |gamma| gamma * root);
                let scale = gamma.is_some();
                (Reparametrize { center, eps, factor, scale, ..op }, scale.then_some(Init::Constant(1.0)))
            }
            (None, false, _) => return Ok(inputs[0]),
        };
        if let Some(init) = factors {
            let mut dims = vec![1; shape.rank()];
            dims[axis] = op.parts();
            inputs.push(b.parameter(second, &dims, Role::Norm, init));
        }
        b.made_of_parameters(op, &inputs)
    }
}

/// The least divisor, as in PyTorch.
const SPECTRAL_EPS: f64 = 1e-12;

/// Adds a weight divided by its largest singular value, with the singular vectors as running statistics. The rows are along `axis`.
fn spectral(b: &mut Builder<'_>, axis: usize, shape: Shape, init: Init) -> Result<Value, Mistake> {
    let weight = b.parameter("parametrizations.weight.original", shape.dims(), Role::Weight, init);
    let Reparametrize { sizes, .. } = Reparametrize::along(axis, shape);
    let op = SpectralNorm { sizes, eps: SPECTRAL_EPS, eval: false, shape };
    let mut vector = |name: &str, length: u64, right: bool| b.buffer(name, &[length], Init::Singular { sizes, right });
    let buffers = [
        vector("parametrizations.weight.0._u", op.rows(), false),
        vector("parametrizations.weight.0._v", op.columns(), true),
    ];
    b.made_with(op, &[weight], &buffers)
}

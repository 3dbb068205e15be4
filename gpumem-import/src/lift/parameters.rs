//! Values that all samples share: parameters, what is computed from them, and constants.

pub(crate) use super::constants::written as constant;
use super::{Arguments, Layer, Lift, Literal, Result, refuse};
use crate::fold::{Origin, Tensor};
use crate::model::{Node, StateKind, ValueId};

/// Operations that draw numbers from the normal distribution.
const NORMAL: [&str; 3] = ["randn", "randn_like", "normal"];
/// The most operations between a value and the parameters that it is computed from.
const DEEPEST: u32 = 128;

impl Lift<'_> {
    /// Returns the value that a layer reads: lifts it first if all samples share it.
    pub(crate) fn operand(&mut self, value: ValueId) -> Result<ValueId> {
        let value = self.resolve(value);
        if self.wide.contains_key(&value) {
            return refuse("a sample of what it reads has more axes than the language has");
        }
        if self.is_sample(value) || self.shared.get(&value) == Some(&true) {
            return Ok(self.follow(value));
        }
        // A value that is computed from itself is a fault of the file.
        if self.shared.insert(value, false).is_some() || self.shared_depth >= DEEPEST {
            return refuse("it reads a value that is computed in too many steps");
        }
        self.shared_depth += 1;
        let found = self.lift_shared(value);
        self.shared_depth -= 1;
        match found {
            Ok(()) => self.shared.insert(value, true),
            Err(_) => self.shared.remove(&value),
        };
        found.map(|()| self.follow(value))
    }

    fn lift_shared(&mut self, value: ValueId) -> Result {
        match &self.origins[value] {
            Origin::Sample => Ok(()),
            Origin::Random => self.noise(value),
            // Statistics that are no part of the file are frozen parameters, as all that is computed from them.
            Origin::Constant(None) if self.comes_from_state(value) => self.computed(value),
            Origin::Constant(None) => refuse("it reads a constant whose numbers are not in the file"),
            Origin::Constant(Some(tensor)) => {
                let tensor = tensor.clone();
                let (shape, numbers) = self.shared_tensor(value, &tensor)?;
                let index = self.place_of_source(value);
                let layer = self.constant(index, value, shape, numbers)?;
                self.add(index, Layer { output: value, ..layer });
                Ok(())
            }
            Origin::Parameters => self.computed(value),
        }
    }

    /// Lifts a new tensor that is written to later. False if the node makes none.
    pub(crate) fn created(&mut self, index: usize, node: &Node, op: &str) -> Result<bool> {
        let number = match op {
            "zeros" | "zeros_like" | "new_zeros" | "empty" | "empty_like" | "new_empty" => 0.0,
            "ones" | "ones_like" | "new_ones" => 1.0,
            "full" | "full_like" | "new_full" => match node.float("fill_value") {
                Some(number) => number,
                None => return Ok(false),
            },
            _ => return Ok(false),
        };
        let Some(&output) = node.outputs.first() else { return Ok(false) };
        let shape: Vec<i64> = self.sample(output).iter().map(|&size| size as i64).collect();
        self.made_shared.insert(output);
        self.add(index, Layer::source("Constant", output).with(number).set("shape", Literal::dims(&shape)));
        Ok(true)
    }

    /// Makes numbers of the normal distribution an input of the network, since the language draws none.
    fn noise(&mut self, value: ValueId) -> Result {
        let maker = self.makers[value].map(|maker| &self.model.nodes[maker]);
        let is_normal = maker.is_some_and(|node| NORMAL.contains(&&node.op[..]) && node.argument("std").is_none());
        if !is_normal || self.batch.axes[value].is_none() {
            return refuse("it reads random numbers");
        }
        self.noise.push(value);
        Ok(())
    }

    /// Adds a parameter, or the operations that compute a value from parameters.
    fn computed(&mut self, value: ValueId) -> Result {
        if let Some(state) = self.state(value) {
            let shape: Vec<i64> = self.sample(value).iter().map(|&size| size as i64).collect();
            let is_frozen = !matches!(state.kind, StateKind::Parameter { .. });
            let layer = Layer::source("Parameter", value).with(Literal::dims(&shape)).key("", Some(&state.key));
            let layer = layer.flag("freeze", is_frozen);
            let index = self.place_of_source(value);
            self.add(index, layer);
            return Ok(());
        }
        let Some(maker) = self.makers[value] else { return refuse("it reads a value that nothing makes") };
        self.lift(maker)?;
        let model = self.model;
        self.shared.extend(model.nodes[maker].outputs.iter().map(|&output| (output, true)));
        Ok(())
    }

    /// True for numbers that are a buffer without elements in the file, or are computed from others.
    fn comes_from_state(&self, value: ValueId) -> bool {
        let is_float = self.model.values[value].dtype.is_float();
        is_float && (self.makers[value].is_some() || self.state(value).is_some())
    }

    /// Returns the node where a source stands: where it is read first.
    fn place_of_source(&self, value: ValueId) -> usize {
        self.readers[value].first().copied().or(self.makers[value]).unwrap_or(0)
    }

    /// Returns a constant as a sample has it: without the batch, whose samples are equal.
    pub(crate) fn shared_tensor(&self, value: ValueId, tensor: &Tensor) -> Result<(Vec<u64>, Vec<f64>)> {
        let numbers = tensor.numbers();
        let Some(axis) = self.batch.axes[value] else { return Ok((tensor.shape.clone(), numbers)) };
        let after = tensor.shape.get(axis.dim + 1..).unwrap_or_default();
        let inner = super::shapes::elements(after).saturating_mul(axis.after);
        let size = self.batch.size;
        let first: Vec<f64> = numbers
            .iter()
            .enumerate()
            .filter(|(at, _)| (*at as u64 / inner.max(1)).is_multiple_of(size))
            .map(|(_, number)| *number)
            .collect();
        let is_equal = numbers.iter().enumerate().all(|(at, number)| {
            let at = at as u64;
            let place = at / (inner * size).max(1) * inner + at % inner.max(1);
            first.get(place as usize).is_some_and(|other| other == number || other.is_nan() && number.is_nan())
        });
        match is_equal {
            true => Ok((self.sample(value), first)),
            false => refuse("it reads a constant that differs from sample to sample"),
        }
    }
}

//! Values that all samples share: parameters, what is computed from them, and constants.

use super::{Layer, Lift, Literal, Result, refuse};
use crate::fold::{Origin, Tensor};
use crate::model::ValueId;

/// The most numbers that `Constant` takes.
const MOST_NUMBERS: usize = 4096;

impl Lift<'_> {
    /// Returns the value that a layer reads: lifts it first if all samples share it.
    pub(crate) fn operand(&mut self, value: ValueId) -> Result<ValueId> {
        let value = self.resolve(value);
        if self.is_sample(value) || self.shared.contains_key(&value) {
            return Ok(value);
        }
        self.shared.insert(value, true);
        match &self.origins[value] {
            Origin::Sample => {}
            Origin::Random => return refuse("it reads random numbers"),
            Origin::Constant(None) => return refuse("it reads a constant whose numbers are not in the file"),
            Origin::Constant(Some(tensor)) => {
                let layer = constant(&self.shared_tensor(value, tensor)?)?;
                self.add_source(value, layer);
            }
            Origin::Parameters => self.computed(value)?,
        }
        Ok(self.resolve(value))
    }

    /// Adds a parameter, or the operations that compute a value from parameters.
    fn computed(&mut self, value: ValueId) -> Result {
        if let Some(state) = self.state(value) {
            let shape: Vec<i64> = self.sample(value).iter().map(|&size| size as i64).collect();
            let layer = Layer::source("Parameter", value)
                .with(Literal::Tuple(shape.into_iter().map(Literal::Int).collect()))
                .key("", Some(&state.key));
            self.add_source(value, layer);
            return Ok(());
        }
        let Some(maker) = self.makers[value] else { return refuse("it reads a value that nothing makes") };
        self.lift(maker)
    }

    fn add_source(&mut self, value: ValueId, layer: Layer) {
        // It stands where it is read first.
        let reader = self.readers[value].first().copied().or(self.makers[value]).unwrap_or(0);
        let layer = Layer { output: value, ..layer };
        self.add(reader, layer);
    }

    /// Returns a constant as a sample has it: without the batch, whose samples are equal.
    pub(crate) fn shared_tensor(&self, value: ValueId, tensor: &Tensor) -> Result<(Vec<u64>, Vec<f64>)> {
        let numbers = tensor.numbers();
        let Some(axis) = self.batch.axes[value] else { return Ok((tensor.shape.clone(), numbers)) };
        let inner: u64 = tensor.shape[axis.dim + 1..].iter().product::<u64>() * axis.after;
        let size = self.batch.size;
        let first: Vec<f64> = numbers
            .iter()
            .enumerate()
            .filter(|(at, _)| (*at as u64 / inner.max(1)) % size == 0)
            .map(|(_, number)| *number)
            .collect();
        let is_equal = numbers.iter().enumerate().all(|(at, number)| {
            let at = at as u64;
            let place = at / (inner * size) * inner + at % inner;
            first.get(place as usize).is_some_and(|other| other == number || other.is_nan() && number.is_nan())
        });
        match is_equal {
            true => Ok((self.sample(value), first)),
            false => refuse("it reads a constant that differs from sample to sample"),
        }
    }
}

pub(crate) fn constant((shape, numbers): &(Vec<u64>, Vec<f64>)) -> Result<Layer> {
    let layer = Layer::source("Constant", 0);
    let sizes = Literal::Tuple(shape.iter().map(|&size| Literal::from(size)).collect());
    match &numbers[..] {
        [first, rest @ ..] if rest.iter().all(|number| number == first) => {
            let layer = layer.with(*first);
            Ok(if shape.iter().product::<u64>() == 1 { layer } else { layer.set("shape", sizes) })
        }
        numbers if numbers.len() <= MOST_NUMBERS => {
            let list: Vec<String> = numbers.iter().map(|number| format!("{number:?}")).collect();
            Ok(layer.with(Literal::Word(format!("[{}]", list.join(", ")))).set("shape", sizes))
        }
        numbers => refuse(format!(
            "it reads a constant of {} numbers, and `Constant` takes at most {MOST_NUMBERS}; make it an input of the network",
            numbers.len()
        )),
    }
}

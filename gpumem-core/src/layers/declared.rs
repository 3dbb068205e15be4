//! A layer that the user declared with `operation!`.

use super::builder::Use;
use super::builder::{Builder, Scope, Value};
use super::insert::Built;
use super::mistake::Mistake;
use super::recovery::Guess;
use crate::graph::{Graph, NodeId};
use crate::number::Role;
use crate::program::{Init, Op};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A layer that the user declared, with all numbers known.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its name in the language.
    pub kind: String,
    /// Its operation.
    pub op: Op,
    /// Its parameters.
    pub parameters: Vec<OwnParameter>,
}

/// A parameter of a layer that the user declared. Its number format is that of weights of products and convolutions.
#[derive(Clone, Debug)]
pub struct OwnParameter {
    /// Its name within the layer.
    pub name: String,
    /// Its dimensions.
    pub shape: Shape,
    /// The initialisation before the first step.
    pub init: Init,
}

impl Own {
    fn build(&self, b: &mut Builder<'_>, x: Value) -> Result<Value, Mistake> {
        let mut inputs = vec![x];
        for OwnParameter { name, shape, init } in &self.parameters {
            inputs.push(b.parameter(name, shape.dims(), Role::Weight, *init));
        }
        b.op(self.op.clone(), &inputs)
    }
}

impl Graph {
    /// Adds one use of a layer that the user declared.
    pub fn own_layer(&mut self, own: &Own, input: NodeId, path: String, used: Use) -> Built {
        let before = self.sizes();
        let x = Value::of(self, input);
        let steps = used.steps.clone();
        let scope = Scope { path, kind: own.kind.clone(), used, tied_to: None, guess: Guess::default() };
        let mut builder = Builder::new(self, scope);
        let value = own.build(&mut builder, x);
        let finished = builder.finish(value);
        let (mistakes, guessed) = (finished.mistakes, finished.guessed);
        match finished.row {
            Some((row, value)) => {
                self.rows.push(row);
                Built { value: Some(value), row: Some(self.rows.len() - 1), mistakes, guessed }
            }
            None => {
                self.truncate(before);
                steps.iter().for_each(|steps| steps.forget(before[0]));
                Built { value: None, row: None, mistakes, guessed }
            }
        }
    }
}

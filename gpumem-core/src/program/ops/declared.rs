use crate::number::Role;
use crate::program::encoding::{Reader, Wire, record};
use crate::program::op::{Edge, Gradient, Inputs, Reads, Rule, Saved, Work, Workspace};
use crate::shape::Shape;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Deref;

/// An operation that the user declared with `operation!`, computed by the user's functions.
///
/// * Inputs: x, then the parameters.
/// * One gradient operation computes all inputs' gradients. It reads the tensors that the declaration keeps, and the saved ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared(Box<Declaration>);

impl From<Declaration> for Declared {
    fn from(declaration: Declaration) -> Declared {
        Declared(declaration.into())
    }
}

impl Deref for Declared {
    type Target = Declaration;

    fn deref(&self) -> &Declaration {
        &self.0
    }
}

impl Wire for Declared {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Declared> {
        Declaration::take(from).map(Declared::from)
    }
}

record! {
    /// The declaration of an operation by the user.
    pub struct Declaration {
        /// The layer's name.
        pub name: String,
        /// The path to its functions in the network's [`Operations`](crate::operation::Operations): the indices of the modules on the way, and
        /// its own index there.
        pub route: Vec<u64>,
        /// The dimensions and integer arguments of its functions, by name. `true` and `false` are 1 and 0.
        pub sizes: Vec<(String, u64)>,
        /// The other arguments.
        pub numbers: Vec<(String, f64)>,
        /// Dimensions of x.
        pub input: Shape,
        /// Dimensions of y.
        pub output: Shape,
        /// Dimensions of each parameter.
        pub parameters: Vec<Shape>,
        /// Shapes of the tensors that the forward pass saves for each sample.
        pub saves: Vec<Shape>,
        /// The inputs that the backward pass reads, of x and the parameters.
        pub keeps: Vec<u64>,
        /// True if the backward pass reads y.
        pub keeps_output: bool,
        /// Scratch elements in f32 of the forward and of the backward pass, for a sample.
        pub workspace: [u64; 2],
        /// Threads of the forward and of the backward pass on a card, for a sample. 0 for one thread an element of y, and of x.
        pub threads: [u64; 2],
        /// Multiply-accumulate operations of a sample.
        pub macs: u64,
    }
}

impl Declared {
    /// Most parameters.
    pub const MOST_PARAMETERS: usize = 8;

    fn reads(&self) -> Reads {
        let kept: Vec<u8> = self.keeps.iter().filter_map(|&input| u8::try_from(input).ok()).collect();
        let saved = !self.saves.is_empty();
        Reads { inputs: Inputs::of(&kept), output: self.keeps_output, saved, ..Reads::NOTHING }
    }
}

impl Rule for Declared {
    fn output(&self) -> Shape {
        self.output
    }

    fn gradients(&self) -> Vec<Gradient> {
        let reads = self.reads();
        let inputs = 0..=self.parameters.len().min(Declared::MOST_PARAMETERS) as u8;
        vec![Gradient::computed(&inputs.map(|input| (input, reads)).collect::<Vec<_>>())]
    }

    fn saved(&self) -> Vec<Saved> {
        self.saves.iter().map(|&shape| Saved::each(shape, Role::Statistic)).collect()
    }

    fn workspace(&self, work: Work) -> Option<Workspace> {
        let [forward, backward] = self.workspace;
        let elements = if matches!(work, Work::Gradient(_)) { backward } else { forward };
        (elements > 0).then(|| Workspace { role: Role::Statistic, shape: Shape::new(&[elements]), batched: true })
    }

    fn macs(&self) -> u64 {
        self.macs
    }

    /// Returns none if the shape changes: types do not know the user's rule.
    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        if self.input == self.output { vec![Edge::new("Same", &[], inputs[0], self.output)] } else { Vec::new() }
    }
}

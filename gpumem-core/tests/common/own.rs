//! Layers as users declare them: formulas, and one with functions of its own on both backends.

use gpumem_core::graph::{Graph, NodeId, RowId};
use gpumem_core::layers::declared::{Own, OwnParameter};
use gpumem_core::layers::{Built, Use};
use gpumem_core::operation::{Backward, CpuFunctions, CudaFile, Forward, Functions, Operations};
use gpumem_core::program::formula::{BinaryOperator, Formula, Term, TermId, UnaryOperator};
use gpumem_core::program::ops::{self, Declaration, Declared};
use gpumem_core::program::{Init, Op};
use gpumem_core::shape::Shape;

/// The functions of what [`built`] builds.
pub static OPERATIONS: Operations = Operations {
    own: &[Functions {
        name: "Fold",
        cpu: Some(CpuFunctions { forward, backward }),
        cuda: Some(CudaFile { name: "fold.cu", text: include_str!("fold.cu") }),
    }],
    used: &[],
};

/// `y = tanh(slope * weight * (x - mean of the row))` for rows of `width`.
fn forward(call: &mut Forward<'_>) {
    let (width, slope) = (call.size("width"), call.number("slope") as f32);
    for row in 0..call.x.len() / width {
        let x = &call.x[row * width..][..width];
        let mean = x.iter().sum::<f32>() / width as f32;
        if let Some(saved) = call.saves[0].get_mut(row) {
            *saved = mean;
        }
        for (i, &x) in x.iter().enumerate() {
            call.y[row * width + i] = (slope * call.parameters[0][i] * (x - mean)).tanh();
        }
    }
}

fn backward(call: &mut Backward<'_>) {
    let (width, slope) = (call.size("width"), call.number("slope") as f32);
    for row in 0..call.dy.len() / width {
        for i in 0..width {
            let at = row * width + i;
            let inner = call.dy[at] * (1.0 - call.y[at] * call.y[at]) * slope;
            if let Some(dweight) = &mut call.dparameters[0] {
                dweight[i] += inner * (call.x[at] - call.saves[0][row]);
            }
            call.workspace[at] = inner * call.parameters[0][i];
        }
        let inner = &call.workspace[row * width..][..width];
        let mean = inner.iter().sum::<f32>() / width as f32;
        if let Some(dx) = &mut call.dx {
            dx[row * width..][..width].iter_mut().zip(inner).for_each(|(dx, inner)| *dx += inner - mean);
        }
    }
}

fn fold(shape: Shape) -> Own {
    let (rows, width) = (shape.dims()[0], shape.dims()[1]);
    let op = Declaration {
        name: "Fold".into(),
        route: vec![0],
        sizes: vec![("rows".into(), rows), ("width".into(), width)],
        numbers: vec![("slope".into(), 0.75)],
        input: shape,
        output: shape,
        parameters: vec![Shape::new(&[width])],
        saves: vec![Shape::new(&[rows])],
        keeps: vec![0, 1],
        keeps_output: true,
        workspace: [0, rows * width],
        threads: [rows, rows * width],
        macs: rows * width,
    };
    let parameter = OwnParameter { name: "weight".into(), shape: Shape::new(&[width]), init: Init::Constant(1.0) };
    Own { kind: "Fold".into(), op: Declared::from(op).into(), parameters: vec![parameter] }
}

/// Every operator, none of which is near a kink where the input is smaller than 3.
fn everything(formula: &mut Formula) -> TermId {
    let x = formula.add(Term::X);
    let number = |formula: &mut Formula, value| formula.add(Term::Number(value));
    let [half, two, four] = [0.5, 2.0, 4.0].map(|value| number(formula, value));
    let positive = formula.add(Term::Binary(BinaryOperator::Add, x, four));
    let mut sum = formula.add(Term::Binary(BinaryOperator::Multiply, half, x));
    for &operator in UnaryOperator::ALL {
        let small = formula.add(Term::Binary(BinaryOperator::Divide, positive, four));
        let term = match operator {
            UnaryOperator::Floor | UnaryOperator::Round => formula.add(Term::Unary(operator, two)),
            _ => formula.add(Term::Unary(operator, small)),
        };
        let part = formula.add(Term::Binary(BinaryOperator::Multiply, half, term));
        let operator = if sum.is_multiple_of(2) { BinaryOperator::Add } else { BinaryOperator::Subtract };
        sum = formula.add(Term::Binary(operator, sum, part));
    }
    for &operator in BinaryOperator::ALL {
        let term = formula.add(Term::Binary(operator, positive, half));
        let other = formula.add(Term::Binary(operator, two, x));
        let both = formula.add(Term::Select(term, half, two));
        let parts = match operator {
            // Its slope is steep.
            BinaryOperator::Divide => [term, both],
            BinaryOperator::Less | BinaryOperator::LessOrEqual | BinaryOperator::Equal => [both, half],
            BinaryOperator::Minimum | BinaryOperator::Maximum => [term, both],
            _ => [term, other],
        };
        for part in parts {
            let scaled = formula.add(Term::Binary(BinaryOperator::Divide, part, four));
            sum = formula.add(Term::Binary(BinaryOperator::Add, sum, scaled));
        }
    }
    formula.add(Term::Unary(UnaryOperator::Tanh, sum))
}

/// `x * sigmoid(1.5 * x)`
fn swish(formula: &mut Formula) -> TermId {
    let (x, beta) = (formula.add(Term::X), formula.add(Term::Number(1.5)));
    let scaled = formula.add(Term::Binary(BinaryOperator::Multiply, beta, x));
    let gate = formula.add(Term::Unary(UnaryOperator::Sigmoid, scaled));
    formula.add(Term::Binary(BinaryOperator::Multiply, x, gate))
}

fn formula(kind: &str, shape: Shape) -> Own {
    let mut all = Formula::default();
    let value = match kind {
        "Swish" => swish(&mut all),
        "Everything" => everything(&mut all),
        "Squash" => {
            let x = all.add(Term::X);
            all.add(Term::Unary(UnaryOperator::Tanh, x))
        }
        other => panic!("no layer is called {other}"),
    };
    let mut slope = all.derivative(value);
    if kind == "Squash" {
        // 1 - y * y, so that the output is kept.
        slope = Formula {
            terms: vec![
                Term::Number(1.0),
                Term::Y,
                Term::Binary(BinaryOperator::Multiply, 1, 1),
                Term::Binary(BinaryOperator::Subtract, 0, 2),
            ],
        };
    }
    let op: Op = ops::Formula { value: all.of(value), slope, shape }.into();
    Own { kind: kind.into(), op, parameters: Vec::new() }
}

/// A layer of this name, with the parameters of row `owner`, if that is given.
pub fn built(graph: &mut Graph, input: NodeId, kind: &str, path: String, owner: Option<RowId>) -> Built {
    let shape = graph.value(input).shape;
    let own = if kind == "Fold" { fold(shape) } else { formula(kind, shape) };
    graph.own_layer(&own, input, path, Use::of(owner))
}

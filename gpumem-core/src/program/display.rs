//! Programs as text for people: one line an operation.

use super::{Action, Class, Collective, Exchange, Leg, Op, Operand, Operation, Pass, Piece, Program, Slot, Tensor};
use crate::number::Role;
use crate::program::{NO_ROW, Part};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.training { "training step" } else { "forward pass" };
        writeln!(f, "{kind}: {} operations, {} tensors", self.operations.len(), self.tensors.len())?;
        write!(f, "{}", OperationLines { operations: &self.operations, paths: &self.paths })?;
        writeln!(f, "tensors that live inside the step")?;
        for (index, id) in self.transients().enumerate() {
            let tensor = self.tensor(id);
            let name = self.tensor_name(tensor);
            let (first, last) = (tensor.first, tensor.last);
            writeln!(f, "{index:>4}  {:<24}  {first:>4} ..{last:>4}  {name}", size_text(tensor))?;
        }
        Ok(())
    }
}

/// Operations as text, one line each.
pub(crate) struct OperationLines<'p> {
    pub(crate) operations: &'p [Operation],
    /// The paths of the layers that they belong to.
    pub(crate) paths: &'p [String],
}

impl fmt::Display for OperationLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs: Vec<String> =
            self.operations.iter().map(|operation| operation_name(self.paths, operation)).collect();
        let width = verbs.iter().map(String::len).max().unwrap_or(0);
        for (index, (operation, verb)) in self.operations.iter().zip(verbs).enumerate() {
            let (reads, writes) = (operands(&operation.reads), operands(&operation.writes));
            writeln!(f, "{index:>4}  {verb:<width$}  {reads} -> {writes}")?;
        }
        Ok(())
    }
}

fn path(paths: &[String], row: u32) -> &str {
    paths.get(row as usize).map_or("network", String::as_str)
}

fn operation_name(paths: &[String], operation: &Operation) -> String {
    let path = path(paths, operation.row);
    let plus = if operation.accumulate { " +=" } else { "" };
    match &operation.action {
        Action::Run { op, pass: Pass::Forward } => format!("{path} {} forward", op.name()),
        Action::Run { op, pass: Pass::Chunk } => format!("{path} {} of a chunk", op.name()),
        Action::Run { op, pass: Pass::Again } => format!("{path} {} again", op.name()),
        Action::Run { op, pass: Pass::Backward } => format!("{path} {} backward{plus}", op.name()),
        Action::Loss(criterion) => format!("{:?} loss{}", criterion.kind, if criterion.again { " again" } else { "" }),
        Action::Check => format!("{path} gradient finite?"),
        Action::Squares(_) => format!("{path} gradient squares"),
        Action::Norm => "norm of gradients".to_string(),
        Action::Update => format!("{path} update"),
        Action::Fetch(piece) => format!("{path} fetch {}", elements(piece)),
        Action::UpdatePiece(piece) => format!("{path} update {}", elements(piece)),
        Action::Store(piece) => format!("{path} store {}", elements(piece)),
        Action::Settle => "wait for copies".to_string(),
        Action::Park(Leg::Leave) => format!("{path} to host"),
        Action::Park(Leg::Left) => format!("{path} is on host"),
        Action::Park(Leg::Return) => format!("{path} from host"),
        Action::Park(Leg::Returned) => format!("{path} is back"),
        Action::Accumulate => format!("{path} gradient +="),
        Action::Collect => format!("{path} gradient of all parts +="),
        Action::Copy => format!("{path} gradient copy"),
        Action::SumBatch => format!("{path} gradient sum over batch{plus}"),
        Action::Advance => "step += 1".to_string(),
        Action::SaveStatistics(_) => format!("{path} statistics saved"),
        Action::RestoreStatistics(_) => format!("{path} statistics restored"),
        Action::Average => format!("{path} average"),
        Action::AveragePiece(piece) => format!("{path} average {}", elements(piece)),
        Action::Exchange(exchange) => format!("{path} {} over ranks", collective(exchange)),
        Action::EndExchange(exchange) => format!("{path} wait for {} over ranks", collective(exchange)),
    }
}

fn collective(exchange: &Exchange) -> &'static str {
    match exchange.collective {
        Collective::Sum => "sum",
        Collective::Gather => "gather",
        Collective::Mean => "mean",
        Collective::Overflow => "overflow",
    }
}

fn operands(operands: &[Operand]) -> String {
    let one = |operand: &Operand| {
        let slot = match operand.slot {
            Slot::Input(index) => format!("x{index}"),
            Slot::Output => "y".to_string(),
            Slot::Parameter => "w".to_string(),
            Slot::Buffer(index) => format!("b{index}"),
            Slot::Saved(index) => format!("s{index}"),
            Slot::Gradient => "dy".to_string(),
            Slot::InputGradient(index) => format!("dx{index}"),
            Slot::ParameterGradient => "dw".to_string(),
            Slot::Moment(index) => format!("m{index}"),
            Slot::State => "state".to_string(),
            Slot::Target => "target".to_string(),
            Slot::Loss => "loss".to_string(),
            Slot::Workspace => "scratch".to_string(),
            Slot::GroupInput(index) => format!("group{index}"),
            Slot::Cache(index) => format!("cache{index}"),
            Slot::Master => "master".to_string(),
            Slot::Scratch(index) => format!("t{index}"),
            Slot::Average => "average".to_string(),
            Slot::Sent(index) => format!("sent{index}"),
            Slot::Received(index) => format!("received{index}"),
        };
        format!("{slot}=%{}", operand.tensor)
    };
    let texts: Vec<String> = operands.iter().map(one).collect();
    texts.join(" ")
}

/// Returns the name of a tensor in texts: its own name, or its layer's path and its part in that layer.
pub(crate) fn tensor_name(paths: &[String], tensor: &Tensor) -> String {
    if !tensor.name.is_empty() {
        return tensor.name.clone();
    }
    if tensor.row == u32::from(NO_ROW) && tensor.class == Class::Transient {
        return if tensor.part == Part::Workspace { "loss workspace".into() } else { "loss".into() };
    }
    format!("{}{}", path(paths, tensor.row), Part::describe(tensor.part as u8))
}

impl Program {
    /// Returns the name of an operation in texts: `stage[0].conv2d[1] Convolution backward`.
    pub fn operation_name(&self, operation: &Operation) -> String {
        operation_name(&self.paths, operation)
    }

    /// Returns the path of the first layer that applies batch norm to maps of a single element. `None` if there is none.
    pub fn normalizes_single(&self) -> Option<String> {
        let is_single = |size: &[u64; 2]| *size == [1, 1];
        let found = self.operations.iter().find(|operation| match &operation.action {
            Action::Run { op: Op::BatchNorm(norm), .. } => is_single(&norm.size) && !norm.eval,
            Action::Run { op: Op::InplaceNorm(norm), .. } => is_single(&norm.size),
            Action::Run { op: Op::NormalizedConvolution(norm), .. } => is_single(&norm.size),
            _ => false,
        })?;
        Some(path(&self.paths, found.row).to_string())
    }

    /// Returns the name of the first loss that compares samples of a batch with each other. `None` if there is none.
    pub fn compares_samples(&self) -> Option<&'static str> {
        self.operations.iter().find_map(|operation| match &operation.action {
            Action::Loss(criterion) if criterion.over().compares_samples() => Some(criterion.kind.name()),
            _ => None,
        })
    }

    /// Returns the name of a tensor in texts: its own name, or its layer's path and its part in that layer.
    pub fn tensor_name(&self, tensor: &Tensor) -> String {
        tensor_name(&self.paths, tensor)
    }
}

fn elements(piece: &Piece) -> String {
    format!("[{}..{}]", piece.first, piece.first.saturating_add(piece.count))
}

/// Returns the kind, the batch and the shape of a tensor in texts: `number B x [4, 8]`.
pub(crate) fn size_text(tensor: &Tensor) -> String {
    let kind = match tensor.role {
        Role::Index => "index",
        Role::State => "word",
        Role::Statistic | Role::WideMoment | Role::Scale => "f32",
        Role::Code | Role::Int8 => "code",
        Role::Nf4 | Role::Nf4Double => "half code",
        Role::Bit => "bit",
        _ => "number",
    };
    let shape = tensor.shape;
    let batch = if tensor.batched { "B x " } else { "" };
    let once = if tensor.once > 0 { format!(" + {}", tensor.once) } else { String::new() };
    format!("{kind} {batch}{shape}{once}")
}

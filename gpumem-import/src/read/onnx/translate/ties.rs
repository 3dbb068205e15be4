//! Finds weights that an exporter has written twice: as a table, and as the matrix of the last layer, transposed or not.

use super::super::proto::{GraphProto, TensorProto};
use super::super::tensor;
use super::Translator;
use crate::model::{StateKind, ValueId};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Elements that are compared. Matrices of different numbers do not agree in so many.
const SAMPLES: u64 = 512;

impl Translator<'_> {
    /// Ties each matrix that is stored as `[in, out]` to a parameter that has its numbers as `[out, in]`, and each that has the numbers of a table
    /// to that. A table that has the numbers of another one is a copy, such as that of a teacher, and stays apart.
    pub(super) fn tie(&mut self, graph: &GraphProto) {
        let tensors: HashMap<&str, &TensorProto> =
            graph.initializer.iter().map(|tensor| (tensor.name.as_deref().unwrap_or(""), tensor)).collect();
        let looked_up = self.model.nodes.iter().filter(|node| node.op == "embedding");
        let tables: Vec<ValueId> = looked_up.filter_map(|node| node.tensor("weight")).collect();
        let matrices = self.model.state.iter().map(|state| state.value);
        let plain: Vec<ValueId> =
            matrices.filter(|value| !tables.contains(value) && !self.turned.contains(value)).collect();
        let turned = self.turned.clone();
        for (value, is_turned) in
            turned.into_iter().map(|value| (value, true)).chain(plain.into_iter().map(|value| (value, false)))
        {
            let Some(&index) = self.owners.get(&value) else { continue };
            let is_owner = |state: usize| is_turned || tables.contains(&self.model.state[state].value);
            let owner = (0..self.model.state.len())
                .find(|&other| is_owner(other) && self.is_same(value, other, &tensors, is_turned));
            if let Some(owner) = owner.filter(|&owner| owner != index) {
                let key = self.model.state[index].key.clone();
                self.weights.retain(|weight| weight.key != key);
                self.model.state[index].tied_to = Some(owner);
            }
        }
    }

    /// True if a state is another parameter with the numbers of a matrix, transposed or as they are.
    fn is_same(&self, value: ValueId, other: usize, tensors: &HashMap<&str, &TensorProto>, is_turned: bool) -> bool {
        let state = &self.model.state[other];
        let (matrix, table) = (&self.model.values[value], &self.model.values[state.value]);
        let is_table = matches!(state.kind, StateKind::Parameter { .. })
            && state.tied_to.is_none()
            && state.value != value
            && !self.turned.contains(&state.value);
        let (&[rows, columns], true) =
            (&matrix.shape[..], is_table && matrix.shape == table.shape && matrix.dtype == table.dtype)
        else {
            return false;
        };
        let (Some(&turned), Some(&plain)) = (tensors.get(&matrix.name[..]), tensors.get(&table.name[..])) else {
            return false;
        };
        let elements = rows.saturating_mul(columns);
        if elements < 1 << 12 {
            return false;
        }
        // A step that is prime to both sizes visits all rows and columns.
        let places: Vec<[u64; 2]> =
            (0..SAMPLES).map(|at| [at.wrapping_mul(7919) % rows, at.wrapping_mul(104_729) % columns]).collect();
        let of = |tensor, place: &dyn Fn(&[u64; 2]) -> u64| {
            elements_at(tensor, self.path, &places.iter().map(place).collect::<Vec<_>>())
        };
        let first = of(turned, &|&[row, column]| if is_turned { column * rows + row } else { row * columns + column });
        let second = of(plain, &|&[row, column]| row * columns + column);
        let differs = |all: &Vec<Vec<u8>>| all.iter().any(|element| element != &all[0]);
        first.is_some() && first == second && first.as_ref().is_some_and(differs)
    }
}

/// Reads some elements of a tensor. `None` if its bytes are missing.
fn elements_at(tensor: &TensorProto, path: &Path, places: &[u64]) -> Option<Vec<Vec<u8>>> {
    let (dtype, shape) = tensor::shape(tensor)?;
    let (size, whole) = (dtype.bytes(), tensor::bytes(&shape, dtype)?);
    let inside =
        |place: &u64| place.checked_mul(size).filter(|start| start.checked_add(size).is_some_and(|end| end <= whole));
    let starts: Vec<u64> = places.iter().map(inside).collect::<Option<_>>()?;
    match (tensor::place(tensor, path).ok()?, &tensor.raw_data) {
        (None, Some(raw)) => {
            let element = |&start: &u64| Some(raw.get(start as usize..(start + size) as usize)?.to_vec());
            starts.iter().map(element).collect()
        }
        (Some(place), _) if place.length == whole => {
            let mut file = File::open(place.inside(path.parent().unwrap_or(Path::new("")))?).ok()?;
            let mut element = |&start: &u64| {
                let mut bytes = vec![0; usize::try_from(size).ok()?];
                file.seek(SeekFrom::Start(place.offset.checked_add(start)?)).ok()?;
                file.read_exact(&mut bytes).ok()?;
                Some(bytes)
            };
            starts.iter().map(&mut element).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;

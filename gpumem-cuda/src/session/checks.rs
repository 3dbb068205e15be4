//! Indices from outside, checked before they reach the card.

use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::criterion::{Allowed, Indices};
use gpumem_core::program::{Action, Class, Op, Operation, Pass, Slot};

/// Indices from outside, checked before they reach the card: a kernel that follows one that is too large would read whatever
/// is there.
#[derive(Debug)]
pub(super) struct IndexCheck {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    what: &'static str,
    limit: u64,
    /// Those beyond it that are no mistake.
    allowed: Allowed,
}

impl IndexCheck {
    pub(super) fn run(&self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() as u64 != self.bytes {
            let found = bytes.len() as u64 / 4;
            return Err(Error::Length { what: format!("a batch of {}s", self.what), expected: self.bytes / 4, found });
        }
        let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let is_wrong = |value: u32| u64::from(value) >= self.limit && !self.allowed.allows(value);
        match words.enumerate().find(|(_, value)| is_wrong(*value)) {
            None => Ok(()),
            Some((position, value)) => {
                Err(Error::Index { what: self.what, position: position as u64, value, limit: self.limit })
            }
        }
    }
}

pub(super) fn index_checks(placed: &Placed, batch: u64) -> Vec<IndexCheck> {
    let checks = |operation: &Operation| -> Vec<IndexCheck> {
        let all = match &operation.action {
            Action::Run { op: Op::Gather(op), pass: Pass::Forward } => {
                let slot = Slot::Input(0);
                vec![Indices { what: "token", slot, each: op.count, limit: op.rows, allowed: Allowed::Nothing }]
            }
            Action::Loss(criterion) => criterion.indices(),
            _ => Vec::new(),
        };
        let check = |Indices { what, slot, limit, allowed, .. }| {
            let id = operation.read(slot)?;
            let tensor = placed.program.tensor(id);
            let is_given = matches!(tensor.class, Class::Input | Class::Target);
            is_given.then_some(())?;
            let (offset, bytes) = (placed.offsets[id as usize], tensor.elements(batch)? * 4);
            Some(IndexCheck { offset, bytes, what, limit, allowed })
        };
        all.into_iter().filter_map(check).collect()
    };
    placed.program.operations.iter().flat_map(checks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_checked_before_they_reach_the_card() {
        let check = IndexCheck { offset: 0, bytes: 8, what: "label", limit: 10, allowed: Allowed::One(255) };
        let bytes = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(check.run(&bytes(&[0, 9])), Ok(()));
        assert_eq!(check.run(&bytes(&[255, 9])), Ok(()));
        let error = check.run(&bytes(&[3, 10])).unwrap_err();
        assert_eq!(error, Error::Index { what: "label", position: 1, value: 10, limit: 10 });
        let error = check.run(&bytes(&[3])).unwrap_err();
        assert_eq!(error.to_string(), "a batch of labels has 2 elements, but 1 were given");
    }
}

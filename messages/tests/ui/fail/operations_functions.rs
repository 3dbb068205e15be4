//! Functions of layers of one's own that are missing, or take something else.
use gpumem::operation::{Backward, Forward};
use gpumem::prelude::*;

mod functions {
    use super::Forward;

    pub fn forward(_: &mut Forward<'_>) {}
}

struct Shift;

impl Shift {
    fn forward(_: &mut Forward<'_>) {}
    fn backward(_: &Backward<'_>) {}
}

network! {
    pub struct Functions;

    operation! {
        fn Half(x) { cpu: functions }
        fn Move(x) { cpu: Shift }
    }

    fn forward(x: Features<10>) -> Features<10> {
        [Half, Move]
    }
}

fn main() {}

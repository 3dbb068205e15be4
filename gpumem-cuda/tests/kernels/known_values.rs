//! Small inputs with known answers.

use crate::host::harness;

#[macro_use]
#[path = "../../../gpumem-cpu/tests/known_values/cases.rs"]
mod cases;

known_values!(crate::host::given::on_kernels);

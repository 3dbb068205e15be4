//! Small inputs with known answers, on the CPU backend.

#[path = "../harness/mod.rs"]
mod harness;

#[macro_use]
mod cases;

known_values!(harness::given::on_cpu);

//! A card whose memory others hold: a refusal with figures, and nothing broken after it.

use crate::card;
use crate::harness::curves::vgg16;
use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use gpumem_core::error::Error;
use gpumem_core::memory::budget::Line;
use gpumem_cuda::Cuda;

/// Memory that something else holds.
struct Held(Vec<CUdeviceptr>);

impl Held {
    /// Takes memory until less than `rest` bytes are free.
    fn all_but(cuda: &Cuda, rest: u64) -> Held {
        let mut held = Held(Vec::new());
        let mut piece = u64::MAX;
        loop {
            // Asking binds the context to this thread.
            let (free, _) = cuda.memory().unwrap();
            if free < rest {
                return held;
            }
            // Not all that is free can be had in one piece.
            piece = piece.min(free - rest / 2);
            // SAFETY: the context is bound; what is allocated is freed in `drop` and used by nothing.
            match unsafe { result::malloc_sync(piece as usize) } {
                Ok(address) => held.0.push(address),
                Err(_) => piece /= 2,
            }
            assert!(piece > 1 << 20, "{free} bytes are free, but none can be had");
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for &address in &self.0 {
            // SAFETY: allocated in `all_but`, on this thread, whose context is the same still.
            let _ = unsafe { result::free_sync(address) };
        }
    }
}

#[test]
fn too_little_free_memory_is_refused_with_figures() {
    let Some(card) = card() else { return };
    let network = vgg16(4);
    let arena = network.budget()[Line::Arena];
    let (before, _) = card.cuda.memory().unwrap();
    let held = Held::all_but(&card.cuda, arena / 2);
    let error = network.on(&card.cuda).map(|_| ()).unwrap_err();
    println!("{error}");
    let Error::Memory { needed, free: Some(free), .. } = error else { panic!("{error}") };
    assert!(needed >= arena, "{needed} bytes for an arena of {arena}");
    assert!(free < arena / 2, "{free} bytes were said to be free");

    drop(held);
    let (after, _) = card.cuda.memory().unwrap();
    assert!(after.abs_diff(before) <= 4 << 20, "a refusal leaves nothing behind: {before} bytes free, then {after}");
    let mut loaded = network.on(&card.cuda).unwrap();
    loaded.initialise(1);
    let (images, labels) = network.batch_of(0);
    loaded.set("input", &images);
    loaded.set("target", &labels);
    let loss = loaded.step().unwrap();
    assert!((5.0..9.0).contains(&loss), "a loss near ln 1000: {loss}");
}

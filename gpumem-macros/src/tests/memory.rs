//! The memory of the macro itself: an editor's macro server expands a network again and again, in one process.

use proc_macro2::TokenStream;
use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicIsize, Ordering};

/// An allocator that counts the live bytes of the process.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises hold for the system's allocator too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises hold for the system's allocator too.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A network of 16 residual blocks that is too large for its card, with an operation that has an argument.
const REFUSED: &str = "
    pub struct Refused;
    const TRAIN: Train = Train {
        batch: 512, optimizer: AdamW { lr: 0.1 }, loss: CrossEntropy, cards: [RTX_3060], checkpoint: Norms
    };
    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [stage(3, 64), stage(4, 128), stage(6, 256), stage(3, 512), GlobalAvgPool, Scaled(by = 3.0), Linear(1000)]
    }
    fn stage(depth: usize, width: usize) -> Block {
        [Conv2d(width, 3, stride = 2, padding = 1), repeat(depth, block(width))]
    }
    fn block(width: usize) -> Block {
        [
            Add([], [
                Conv2d(width / 4, 1), BatchNorm2d, Relu,
                Conv2d(width / 4, 3, padding = 1), BatchNorm2d, Relu,
                Conv2d(width, 1), BatchNorm2d,
            ]),
        ]
    }
    operation! {
        fn Scaled(x, by: f64 = 2.0) { x * by }
    }
";

/// The environment variable of the process that expands a network and counts.
const ALONE: &str = "GPUMEM_TEST_ALONE";

/// The first expansion fills tables that all later ones use. Later ones leave nothing: searches of packings run in threads of their own, whose
/// ends free the last bytes late, so the bytes after each of several expansions are compared with those after the first one.
#[test]
fn expanding_again_keeps_nothing() {
    // Other tests of this process would be counted too.
    if std::env::var_os(ALONE).is_none() {
        let test = "tests::memory::expanding_again_keeps_nothing";
        let alone = Command::new(std::env::current_exe().unwrap()).args(["--exact", test]).env(ALONE, "1").output();
        let alone = alone.unwrap();
        let text = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let expand = || {
        let tokens: TokenStream = REFUSED.parse().unwrap();
        let text = crate::compile(tokens).to_string();
        assert!(text.contains("check_with") && !text.contains("compile_error"), "{text}");
        // The texts that a thread has parsed are kept for their spans. In a compiler, the compiler has them.
        proc_macro2::extra::invalidate_current_thread_spans();
    };
    let mut live = Vec::with_capacity(8);
    for _ in 0..6 {
        expand();
        live.push(LIVE.load(Ordering::Relaxed));
    }
    let least = live[1..].iter().min().unwrap();
    assert!(*least <= live[0], "live bytes after each expansion: {live:?}");
    assert!(live[5] - live[1] < 10_000, "live bytes after each expansion: {live:?}");
}

//! After the first epoch, nothing is allocated for a sample or a batch.
#![cfg(feature = "image")]

use gpumem_core::run::tensor::Tensor;
use gpumem_core::typed::D;
use gpumem_data::sets::{Cifar, ImageFolder};
use gpumem_data::{Dataset, Loader, Transforms, from_fn};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts allocations of all threads.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to `System`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the conditions of `alloc`, which are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` comes from `System`, with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `at` comes from `System`, with this layout.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Images = Tensor<u8, (D<8>, D<3>, D<32>, D<32>)>;
type Labels = Tensor<u32, (D<8>,)>;

/// The allocations of three epochs, one after the other, of which each has 75 batches.
fn allocations(set: impl Dataset) -> [usize; 3] {
    let mut loader = Loader::<Images, Labels>::new(set).shuffle().workers(3);
    std::array::from_fn(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let batches = loader.epoch().unwrap().map(|batch| batch.unwrap().len).filter(|len| *len == 8).count();
        assert_eq!(batches, 75);
        ALLOCATIONS.load(Ordering::Relaxed) - before
    })
}

/// One test alone: others would allocate meanwhile.
#[test]
fn the_second_epoch_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("test_batch.bin"), vec![3; 3073 * 600]).unwrap();
    let transforms = Transforms::new();
    let transforms = transforms.random_crop(32, 4).random_horizontal_flip(0.5).color_jitter(0.4, 0.4, 0.4, 0.1);
    let sets = [
        allocations(from_fn(600, |index, _, sample| {
            sample.input(0)?.put_bytes(&[index as u8; 3072])?;
            sample.target(0)?.put_label(1)
        })),
        allocations(Cifar::ten(folder.path(), false).unwrap()),
        allocations(Cifar::ten(folder.path(), false).unwrap().transforms(transforms)),
    ];
    for [first, second, third] in sets {
        // Threads that wait at the same time for the first time allocate for that. There are 600 samples in 75 batches.
        assert!(first > 0 && second < 20 && third < 20, "{first} {second} {third}");
    }

    // What is left are the decoder's own tables. The loader's share is none, as above.
    let class = folder.path().join("images/class");
    std::fs::create_dir_all(&class).unwrap();
    let image = image::RgbImage::from_fn(32, 32, |x, y| image::Rgb([x as u8, y as u8, 7]));
    for number in 0..600 {
        let format = ["png", "jpg"][number % 2];
        image.save(class.join(format!("{number}.{format}"))).unwrap();
    }
    let images = ImageFolder::open(folder.path().join("images")).unwrap();
    let [_, second, third] = allocations(images);
    println!("a decoder allocates {} times for an image", third / 600);
    assert!(second < 100 * 600 && second.abs_diff(third) < 600, "{second} {third}");
}

//! The transforms of torchvision, on bytes.

use super::{Canvas, Window};
use crate::draw::Draw;
use crate::error::{Error, Result};

/// A transform of an image, by its name in torchvision.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Transform {
    /// Resizes the shorter side to `size` and keeps the ratio of the sides.
    Resize {
        /// Pixels of the shorter side.
        size: usize,
    },
    /// Resizes to a height and a width.
    ResizeTo {
        /// Pixels from top to bottom.
        height: usize,
        /// Pixels from left to right.
        width: usize,
    },
    /// Cuts out the middle. Pixels beyond the edges are black.
    CenterCrop {
        /// Pixels of both sides.
        size: usize,
    },
    /// Cuts out a square at a random place.
    RandomCrop {
        /// Pixels of both sides.
        size: usize,
        /// Black pixels that are added at each edge first.
        padding: usize,
    },
    /// Cuts out a rectangle of random area, ratio and place, and resizes it to a square.
    RandomResizedCrop {
        /// Pixels of both sides.
        size: usize,
        /// The smallest and the largest share of the image's area.
        scale: (f64, f64),
        /// The smallest and the largest ratio of width to height.
        ratio: (f64, f64),
    },
    /// Mirrors the image with probability `p`.
    RandomHorizontalFlip {
        /// The probability.
        p: f64,
    },
    /// Changes brightness, contrast, saturation and hue at random, in a random order.
    ///
    /// The first three are multiplied by factors from `1 - x` to `1 + x`, and the hue is turned by a fraction of the circle from `-hue` to
    /// `hue`.
    ColorJitter {
        /// The largest change of brightness.
        brightness: f64,
        /// The largest change of contrast.
        contrast: f64,
        /// The largest change of saturation.
        saturation: f64,
        /// The largest turn of the hue, at most 0.5.
        hue: f64,
    },
}

/// Transforms in their order, built as in torchvision's `Compose`. Random ones depend on (seed, epoch, index) alone.
///
/// Resizing is bilinear with antialiasing, torchvision's default. Bytes stay bytes: `Normalize` is a layer of the network.
///
/// ```
/// use gpumem_data::Transforms;
///
/// let training = Transforms::new().random_resized_crop(224).random_horizontal_flip(0.5).color_jitter(0.4, 0.4, 0.4, 0.1);
/// let validation = Transforms::new().resize(256).center_crop(224);
/// let cifar = Transforms::new().random_crop(32, 4).random_horizontal_flip(0.5);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transforms {
    transforms: Vec<Transform>,
}

impl Transforms {
    /// Returns an empty list of transforms.
    pub fn new() -> Transforms {
        Transforms::default()
    }

    /// Adds a transform.
    #[must_use]
    pub fn then(mut self, transform: Transform) -> Transforms {
        self.transforms.push(transform);
        self
    }

    /// Adds [`Transform::Resize`]. PyTorch: `Resize(size)`.
    #[must_use]
    pub fn resize(self, size: usize) -> Transforms {
        self.then(Transform::Resize { size })
    }

    /// Adds [`Transform::ResizeTo`]. PyTorch: `Resize((height, width))`.
    #[must_use]
    pub fn resize_to(self, height: usize, width: usize) -> Transforms {
        self.then(Transform::ResizeTo { height, width })
    }

    /// Adds [`Transform::CenterCrop`]. PyTorch: `CenterCrop(size)`.
    #[must_use]
    pub fn center_crop(self, size: usize) -> Transforms {
        self.then(Transform::CenterCrop { size })
    }

    /// Adds [`Transform::RandomCrop`]. PyTorch: `RandomCrop(size, padding)`.
    #[must_use]
    pub fn random_crop(self, size: usize, padding: usize) -> Transforms {
        self.then(Transform::RandomCrop { size, padding })
    }

    /// Adds [`Transform::RandomResizedCrop`] with PyTorch's scale and ratio. PyTorch: `RandomResizedCrop(size)`.
    #[must_use]
    pub fn random_resized_crop(self, size: usize) -> Transforms {
        self.then(Transform::RandomResizedCrop { size, scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) })
    }

    /// Adds [`Transform::RandomHorizontalFlip`]. PyTorch: `RandomHorizontalFlip(p)`.
    #[must_use]
    pub fn random_horizontal_flip(self, p: f64) -> Transforms {
        self.then(Transform::RandomHorizontalFlip { p })
    }

    /// Adds [`Transform::ColorJitter`]. PyTorch: `ColorJitter(brightness, contrast, saturation, hue)`.
    #[must_use]
    pub fn color_jitter(self, brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Transforms {
        self.then(Transform::ColorJitter { brightness, contrast, saturation, hue })
    }

    /// True if there are no transforms.
    pub fn is_empty(&self) -> bool {
        self.transforms.is_empty()
    }

    /// Returns the transforms in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Transform> {
        self.transforms.iter()
    }
}

impl Transform {
    pub(super) fn apply(&self, canvas: &mut Canvas, draw: &mut Draw) -> Result<()> {
        let (height, width) = (canvas.height, canvas.width);
        if height == 0 || width == 0 {
            return Err(Error::format(format!("is an image of {height} x {width} pixels; remove it")));
        }
        match *self {
            Transform::Resize { size } => {
                let (height, width) = shorter_side(height, width, size);
                canvas.resize(canvas.whole(), height, width)
            }
            Transform::ResizeTo { height, width } => canvas.resize(canvas.whole(), height, width),
            Transform::CenterCrop { size } => {
                canvas.crop(Window { top: center(height, size), left: center(width, size), height: size, width: size })
            }
            Transform::RandomCrop { size, padding } => {
                let room = |side: usize| {
                    padding
                        .checked_mul(2)
                        .and_then(|both| both.checked_add(side))
                        .and_then(|side| side.checked_sub(size))
                };
                let (Some(rows), Some(columns)) = (room(height), room(width)) else {
                    return Err(Error::format(format!(
                        "is too small to crop {size} x {size} pixels: it has {height} x {width} and a padding of {padding}; resize it before"
                    )));
                };
                let (top, left) = (draw.below(rows + 1), draw.below(columns + 1));
                let place = |first: usize| first as isize - padding as isize;
                canvas.crop(Window { top: place(top), left: place(left), height: size, width: size })
            }
            Transform::RandomResizedCrop { size, scale, ratio } => {
                canvas.resize(random_window(height, width, scale, ratio, draw), size, size)
            }
            Transform::RandomHorizontalFlip { p } => {
                if draw.chance(p) {
                    canvas.flip_horizontally();
                }
                Ok(())
            }
            Transform::ColorJitter { brightness, contrast, saturation, hue } => {
                canvas.jitter([brightness, contrast, saturation], hue, draw)
            }
        }
    }
}

/// Returns height and width with a shorter side of `size`, the longer one rounded down.
fn shorter_side(height: usize, width: usize, size: usize) -> (usize, usize) {
    let longer = |longer: usize, shorter: usize| (size as u128 * longer as u128 / shorter as u128) as usize;
    if height <= width { (size, longer(width, height)) } else { (longer(height, width), size) }
}

/// Returns the first pixel of the middle `size` of `side`, which is negative if `size` is longer.
fn center(side: usize, size: usize) -> isize {
    if size > side {
        -(((size - side) / 2) as isize)
    } else {
        // Python's `round` takes the even neighbour of a half.
        ((side - size) as f64 / 2.0).round_ties_even() as isize
    }
}

/// Returns a part of random area and ratio. Takes the middle if ten trials do not fit the image.
fn random_window(height: usize, width: usize, scale: (f64, f64), ratio: (f64, f64), draw: &mut Draw) -> Window {
    let area = height as f64 * width as f64;
    for _ in 0..10 {
        let target = area * draw.range(scale.0, scale.1);
        let aspect = draw.range(ratio.0.ln(), ratio.1.ln()).exp();
        let columns = (target * aspect).sqrt().round_ties_even() as usize;
        let rows = (target / aspect).sqrt().round_ties_even() as usize;
        if (1..=width).contains(&columns) && (1..=height).contains(&rows) {
            let (top, left) = (draw.below(height - rows + 1), draw.below(width - columns + 1));
            return Window { top: top as isize, left: left as isize, height: rows, width: columns };
        }
    }
    let whole = width as f64 / height as f64;
    let (mut rows, mut columns) = (height, width);
    if whole < ratio.0 {
        rows = ((width as f64 / ratio.0).round_ties_even() as usize).clamp(1, height);
    } else if whole > ratio.1 {
        columns = ((height as f64 * ratio.1).round_ties_even() as usize).clamp(1, width);
    }
    let (top, left) = ((height - rows) / 2, (width - columns) / 2);
    Window { top: top as isize, left: left as isize, height: rows, width: columns }
}

#[cfg(test)]
mod tests {
    use super::{Canvas, Transforms, center, random_window, shorter_side};
    use crate::draw::Draw;

    /// Returns an image of `[height, width, 1]` whose pixels count from 1.
    fn counted(height: usize, width: usize) -> Canvas {
        let mut canvas = Canvas::default();
        let bytes: Vec<u8> = (1..=(height * width) as u8).collect();
        canvas.load_pixels(&bytes, [1, height, width]).unwrap();
        canvas
    }

    fn applied(mut canvas: Canvas, transforms: &Transforms, index: usize) -> (Vec<u8>, usize, usize) {
        canvas.apply(transforms, &mut Draw::new(1, 0, index)).unwrap();
        (canvas.pixels, canvas.height, canvas.width)
    }

    #[test]
    fn sizes_are_those_of_torchvision() {
        // torchvision.transforms.functional._compute_resized_output_size
        assert_eq!(shorter_side(500, 375, 256), (341, 256));
        assert_eq!(shorter_side(375, 500, 256), (256, 341));
        assert_eq!(shorter_side(100, 100, 256), (256, 256));
        // int(round((h - size) / 2.0)), and padding to the left of (size - h) // 2.
        assert_eq!([center(341, 224), center(257, 224), center(259, 224), center(3, 6)], [58, 16, 18, -1]);
    }

    #[test]
    fn crops_take_the_middle_and_are_black_beyond_the_edges() {
        assert_eq!(applied(counted(3, 3), &Transforms::new().center_crop(1), 0), (vec![5], 1, 1));
        // Pixels of an earlier image beyond the edges are not seen.
        let mut used = counted(1, 2);
        used.spare = vec![9; 40];
        let padded = applied(used, &Transforms::new().center_crop(4), 0);
        assert_eq!(padded, ([vec![0; 4], vec![0, 1, 2, 0], vec![0; 8]].concat(), 4, 4));
    }

    #[test]
    fn random_crops_reach_all_places() {
        let crop = Transforms::new().random_crop(2, 1);
        let mut firsts: Vec<u8> = (0..200).map(|index| applied(counted(2, 2), &crop, index).0[3]).collect();
        firsts.sort_unstable();
        firsts.dedup();
        // The last pixel of the crop is any pixel of the image or, past the edge, black.
        assert_eq!(firsts, [0, 1, 2, 3, 4]);
        let mut small = counted(2, 2);
        let error = small.apply(&Transforms::new().random_crop(5, 1), &mut Draw::new(0, 0, 0)).unwrap_err().to_string();
        assert_eq!(error, "is too small to crop 5 x 5 pixels: it has 2 x 2 and a padding of 1; resize it before");
    }

    #[test]
    fn flips_mirror_rows() {
        let flip = Transforms::new().random_horizontal_flip(1.0);
        assert_eq!(applied(counted(2, 3), &flip, 0).0, [3, 2, 1, 6, 5, 4]);
        let never = Transforms::new().random_horizontal_flip(0.0);
        assert_eq!(applied(counted(2, 3), &never, 0).0, [1, 2, 3, 4, 5, 6]);
        let mut canvas = Canvas::default();
        canvas.load_planes(&[1, 2, 3, 4, 5, 6], [3, 1, 2]).unwrap();
        assert_eq!(applied(canvas, &flip, 0).0, [2, 4, 6, 1, 3, 5]);
        let mut canvas = Canvas::default();
        canvas.load_pixels(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [4, 1, 3]).unwrap();
        assert_eq!(applied(canvas, &flip, 0).0, [9, 10, 11, 12, 5, 6, 7, 8, 1, 2, 3, 4]);
    }

    #[test]
    fn resizing_averages() {
        let mut canvas = Canvas::default();
        canvas.load_pixels(&[0, 100, 200, 100], [1, 2, 2]).unwrap();
        assert_eq!(applied(canvas, &Transforms::new().resize(1), 0).0, [100]);
        let (pixels, height, width) = applied(counted(2, 4), &Transforms::new().resize_to(5, 3), 0);
        assert_eq!((pixels.len(), height, width), (15, 5, 3));
    }

    #[test]
    fn random_windows_lie_inside() {
        let mut draw = Draw::new(3, 0, 0);
        for (height, width) in [(300, 400), (1, 500), (500, 1), (7, 7)] {
            for _ in 0..200 {
                let window = random_window(height, width, (0.08, 1.0), (0.75, 4.0 / 3.0), &mut draw);
                assert!(window.top >= 0 && window.top as usize + window.height <= height && window.height > 0);
                assert!(window.left >= 0 && window.left as usize + window.width <= width && window.width > 0);
            }
        }
        assert_eq!(applied(counted(3, 5), &Transforms::new().random_resized_crop(4), 0).0.len(), 16);
    }

    #[test]
    fn no_transform_takes_unbounded_memory() {
        let long = || {
            let mut canvas = Canvas::default();
            canvas.load_pixels(&[0; 60_000], [1, 1, 60_000]).unwrap();
            canvas
        };
        for transforms in [Transforms::new().resize(256), Transforms::new().resize_to(usize::MAX, 7)] {
            let error = long().apply(&transforms, &mut Draw::new(0, 0, 0)).unwrap_err().to_string();
            let advice = "make the image smaller, or raise the limit of the set with `.limit(bytes)`";
            assert!(error.ends_with(advice) && error.contains("at most 268435456 are allowed"), "{error}");
        }
        let mut empty = Canvas::default();
        let error = empty.apply(&Transforms::new().resize(2), &mut Draw::new(0, 0, 0)).unwrap_err();
        assert_eq!(error.to_string(), "is an image of 0 x 0 pixels; remove it");
        // An image without pixels may be an error, but must not panic.
        for transforms in
            [Transforms::new().resize(0), Transforms::new().center_crop(0), Transforms::new().random_crop(0, 1)]
        {
            let _ = long().apply(&transforms, &mut Draw::new(0, 0, 0));
        }
        let error = long().apply(&Transforms::new().center_crop(usize::MAX), &mut Draw::new(0, 0, 0)).unwrap_err();
        assert!(matches!(error.kind(), crate::ErrorKind::TooLarge { .. }));
        let mut many = Canvas::default();
        many.load_pixels(&[0; 20], [5, 2, 2]).unwrap();
        let error = many.apply(&Transforms::new().resize(1), &mut Draw::new(0, 0, 0)).unwrap_err().to_string();
        assert_eq!(error, "images of 5 channels cannot be resized; crop them, or store them in the network's size");
    }
}

//! How the elements of a sample lie in memory.

use super::encoding::{record, wire_enum};
use crate::shape::{Shape, product};

/// Which axis of a map is the innermost one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Order {
    /// `[C, H, W]`, as shapes are written.
    ChannelsFirst,
    /// `[H, W, C]`: the channels of a pixel lie side by side. Shapes are written `[C, H, W]` all the same.
    ChannelsLast,
}
wire_enum!(Order { ChannelsFirst, ChannelsLast });

record! {
    /// How the elements of a sample lie in memory.
    #[derive(Copy, Eq)]
    pub struct Layout {
        /// Which axis is the innermost one. Shapes that are no map have one order only.
        pub order: Order,
        /// Elements from the beginning of one row of the innermost axis to that of the next; 0 where rows follow each other
        /// without gaps.
        pub pitch: u64,
    }
}

/// Elements between neighbours along each axis of a map, and between samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// Between samples: all that a sample takes.
    pub sample: u64,
    /// Between channels.
    pub channel: u64,
    /// Between rows.
    pub row: u64,
    /// Between columns.
    pub column: u64,
}

impl Layout {
    /// The order that shapes are written in, without gaps.
    pub const DENSE: Layout = Layout { order: Order::ChannelsFirst, pitch: 0 };

    /// Whether elements lie one after the other in the order that the shape is written in.
    pub fn is_dense(&self) -> bool {
        *self == Layout::DENSE
    }

    /// Elements that a sample takes, gaps included: `None` if they exceed `u64`, or for a pitch shorter than a row.
    pub fn elements(&self, shape: Shape) -> Option<u64> {
        let inner = match (self.order, shape.as_map()) {
            (Order::ChannelsLast, Some([channels, ..])) => channels,
            _ => shape.last(),
        };
        match self.pitch {
            0 => shape.elements(),
            pitch if pitch < inner => None,
            pitch => shape.elements()?.checked_div(inner)?.checked_mul(pitch),
        }
    }

    /// Where the elements of a map are; `None` for a shape that is none, and as for [`Layout::elements`].
    pub fn strides(&self, shape: Shape) -> Option<Strides> {
        let [channels, height, width] = shape.as_map()?;
        let sample = self.elements(shape)?;
        let pitch = |length: u64| if self.pitch == 0 { length } else { self.pitch };
        Some(match self.order {
            Order::ChannelsFirst => {
                let row = pitch(width);
                Strides { sample, channel: product(&[height, row]), row, column: 1 }
            }
            Order::ChannelsLast => {
                let column = pitch(channels);
                Strides { sample, channel: 1, row: product(&[width, column]), column }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_in_both_orders_with_and_without_gaps() {
        let map = Shape::new(&[3, 4, 5]);
        let strides = |order, pitch| Layout { order, pitch }.strides(map);
        let at = |sample, channel, row, column| Some(Strides { sample, channel, row, column });
        assert_eq!(strides(Order::ChannelsFirst, 0), at(60, 20, 5, 1));
        assert_eq!(strides(Order::ChannelsFirst, 8), at(96, 32, 8, 1));
        assert_eq!(strides(Order::ChannelsLast, 0), at(60, 1, 15, 3));
        assert_eq!(strides(Order::ChannelsLast, 4), at(80, 1, 20, 4));
        assert_eq!(strides(Order::ChannelsFirst, 4), None);
        assert_eq!(strides(Order::ChannelsLast, 2), None);
    }

    #[test]
    fn other_shapes_have_a_pitch_of_their_last_axis() {
        let sequence = Shape::new(&[7, 6]);
        assert_eq!(Layout::DENSE.elements(sequence), Some(42));
        assert_eq!(Layout { pitch: 8, ..Layout::DENSE }.elements(sequence), Some(56));
        assert_eq!(Layout { pitch: 8, ..Layout::DENSE }.strides(sequence), None);
    }
}

//! The names of the kernels that the engine writes.
//!
//! Depends on nothing. A kernel's text has one of these, so that tests know what there is to run, and miss what they do not.

macro_rules! kernel_names {
    ($($variant:ident $name:literal,)*) => {
        /// What a kernel is called in profiles.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(super) enum KernelName {
            $($variant,)*
        }

        impl KernelName {
            pub(super) const fn text(self) -> &'static str {
                match self {
                    $(KernelName::$variant => $name,)*
                }
            }

            /// How many groups are to run on one processor of a GPU at once, as far as its registers decide that.
            pub(super) const fn groups_at_once(self) -> usize {
                match self {
                    Self::DecoderLayer => 2,
                    _ => 1,
                }
            }
        }

        /// The names of all kernels that the engine writes, sorted.
        pub const KERNEL_NAMES: &[&str] = &[$($name,)*];
    };
}
kernel_names! {
    ArgExtremum "arg_extremum",
    AttentionWeights "attention_weights",
    Casts "casts",
    ColumnMoments "column_moments",
    ColumnMomentsJoined "column_moments_joined",
    ColumnNorm "column_norm",
    ColumnNormBack "column_norm_back",
    ColumnNormSums "column_norm_sums",
    ColumnSum "column_sum",
    CrossEntropyBack "cross_entropy_back",
    DecodeAttention "decode_attention",
    DecoderLayer "decoder_layer",
    Element "element",
    Fused "fused",
    Gated "gated",
    GroupMomentsJoined "group_moments_joined",
    GroupNorm "group_norm",
    GroupNormBack "group_norm_back",
    GroupNormSums "group_norm_sums",
    GruLayer "gru_layer",
    GruLayerBack "gru_layer_back",
    GruLayerSaved "gru_layer_saved",
    GruStep "gru_step",
    GruStepBack "gru_step_back",
    GruStepSaved "gru_step_saved",
    Linear "linear",
    LogSoftmax "log_softmax",
    LogSoftmaxBack "log_softmax_back",
    LogSoftmaxRows "log_softmax_rows",
    LogSoftmaxRowsBack "log_softmax_rows_back",
    LogSumExp "log_sum_exp",
    LstmLayer "lstm_layer",
    LstmLayerBack "lstm_layer_back",
    LstmLayerSaved "lstm_layer_saved",
    LstmStep "lstm_step",
    LstmStepBack "lstm_step_back",
    LstmStepSaved "lstm_step_saved",
    MaxPool "max_pool",
    MaxPoolBack "max_pool_back",
    NllMean "nll_mean",
    NllMeanBack "nll_mean_back",
    NllRows "nll_rows",
    NllRowsBack "nll_rows_back",
    NllSum "nll_sum",
    NllSumBack "nll_sum_back",
    ReluBack "relu_back",
    RmsNorm "rms_norm",
    RotatedHeads "rotated_heads",
    RowMajor "row_major",
    RowNormBack "row_norm_back",
    RowNormSums "row_norm_sums",
    RowProduct "row_product",
    SoftmaxBack "softmax_back",
    SoftmaxRowsBack "softmax_rows_back",
    Step "step",
    WindowBack "window_back",
    WindowMax "window_max",
    WindowPlaces "window_places",
}

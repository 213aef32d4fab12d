"""Operations on recurring jobs: what a caller asks for, the planning of fires and their admission by overlap policy."""
